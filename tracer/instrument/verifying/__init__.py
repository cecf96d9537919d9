"""Live weights against their sources, after the library's own renaming and conversion."""
