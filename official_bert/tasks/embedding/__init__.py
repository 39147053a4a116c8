"""Sentence embeddings: the task of run_embeddings.py, which is exported as `embedding`."""
