"""Rules on a load: repeated, failed, slow, remote code."""
