"""The parts of an inspection: tokenizer, memory, the model as it would be built, and its words."""
