"""Models as SavedModels that TensorFlow Serving loads: signatures, versions, warm-up requests."""
