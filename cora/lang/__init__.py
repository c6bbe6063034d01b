"""The definition language: sizes, named dims, lengths, placeholders, computed tensors and their expressions."""
