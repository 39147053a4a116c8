"""Pre-training, and what a pre-trained model answers."""
