"""Text classification and regression: run_classifier.py and its tasks."""
