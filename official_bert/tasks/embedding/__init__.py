"""Sentence vectors: a task that is only exported."""
