"""Pre-training: its objective, and the answers of a pre-trained model."""
