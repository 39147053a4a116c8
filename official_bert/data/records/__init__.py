"""Instances and examples to TFRecord files and back."""
