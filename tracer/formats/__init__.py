"""One checkpoint format a file, read without torch: names, dtypes, shapes and places, no weight."""
