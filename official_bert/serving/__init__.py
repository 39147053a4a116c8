"""Exports models as SavedModels for TensorFlow Serving, with signatures, versions and warm-up
requests.
"""
