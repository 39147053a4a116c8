"""Extractive question answering, SQuAD 1.1 and 2.0: the task of run_squad.py."""
