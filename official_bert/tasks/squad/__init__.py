"""Question answering by spans: run_squad.py, SQuAD 1.1 and 2.0."""
