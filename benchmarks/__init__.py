"""What recording costs, measured as paired ratios in one run. Not part of the package."""
