"""The skeleton of all fine-tuning scripts: a run, its fine-tuner, and searches over runs."""
