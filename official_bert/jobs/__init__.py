"""Code that several scripts share: training jobs, fine-tuning, evaluation during training, search, folders, cards."""
