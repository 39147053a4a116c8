"""Frees the memory of models that are no longer used, in a process that builds one after another."""

import keras
from absl import logging


def forget_models():
    """Lets go of what TensorFlow and Keras keep of models, so that their weights can be freed."""
    gradients = _custom_gradients()
    for name in [name for name in gradients if name.startswith("CustomGradient-")]:
        del gradients[name]
    keras.backend.clear_session()  # collects garbage, too


def _custom_gradients() -> dict:
    """TensorFlow's table of gradients, which holds a custom one, gelu's say, and with it a model's graph, for good.

    TensorFlow has no public name for the table. Where it has another private one, models stay in memory, and a warning
    says so.
    """
    try:
        from tensorflow.python.framework.ops import gradient_registry

        return gradient_registry._registry
    except (ImportError, AttributeError):
        logging.warning(
            "This TensorFlow keeps every model of a search in memory; run large searches in parts"
        )
        return {}
