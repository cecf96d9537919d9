"""Rules on a folder before anything is loaded: files, headers, index, configuration."""
