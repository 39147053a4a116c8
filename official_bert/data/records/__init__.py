"""Writes instances and examples to TFRecord files and reads them back."""
