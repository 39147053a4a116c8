"""Makes pre-training records of raw text."""
