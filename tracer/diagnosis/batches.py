"""Rules on batches: rows that differ from single runs."""
