"""Word tagging, such as named entity recognition: the task of run_ner.py."""
