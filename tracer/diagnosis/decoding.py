"""Rules on what was chosen and how it ended: stops, limits, repetition, NaN."""
