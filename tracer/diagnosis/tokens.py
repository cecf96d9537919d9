"""Rules on a folder's tokenizer, template and token ids before anything is loaded."""
