"""Makes model inputs from text, in Python and in a TensorFlow graph."""
