"""The ladder in Triton."""
