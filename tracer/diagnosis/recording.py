"""Rules on the recording itself: hidden modules, kernels that it forced, its own cost."""
