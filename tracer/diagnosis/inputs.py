"""Rules on inputs: template, special tokens, padding, masks, lengths."""
