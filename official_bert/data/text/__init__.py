"""From text to model inputs, in Python and in a graph."""
