"""Rules on images and videos: placeholders, resizes, time base."""
