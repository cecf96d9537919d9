"""Rules on settings in force: where they come from, which are ignored."""
