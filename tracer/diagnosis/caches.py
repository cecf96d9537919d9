"""Rules on caches: off, not reused, no prefix of the prompt, grown by another call."""
