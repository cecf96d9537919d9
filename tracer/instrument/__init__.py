"""The only rooms that attach to torch and transformers."""
