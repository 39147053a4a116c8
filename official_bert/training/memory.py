"""Memory: how much a process has used, and how that of models that are no longer used is freed."""

import resource
import sys

import keras
import tensorflow as tf
from absl import logging

_MB = 1e6
_RESIDENT_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of one in ru_maxrss


def peak_memory() -> dict[str, float]:
    """Returns the most that this process has used so far: `memory_mb` and, with GPUs, `gpu_memory_mb` of the fullest.

    The first is resident memory, in megabytes of 10^6 bytes.
    """
    found = {"memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RESIDENT_UNIT / _MB}
    if gpus := tf.config.list_logical_devices("GPU"):
        peaks = [tf.config.experimental.get_memory_info(gpu.name)["peak"] for gpu in gpus]
        found["gpu_memory_mb"] = max(peaks) / _MB
    return found


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
