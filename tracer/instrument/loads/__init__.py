"""A load: how a name became files, what was read, placed, tied and filled, and on whose word."""
