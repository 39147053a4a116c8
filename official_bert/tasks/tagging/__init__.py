"""A label for each word, as in named entity recognition: run_ner.py."""
