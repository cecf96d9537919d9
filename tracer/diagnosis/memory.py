"""Rules on memory: peaks against need, what is kept after a call."""
