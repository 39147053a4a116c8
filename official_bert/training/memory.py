"""The memory of a process: the peak that the devices had, and models that are no longer used."""

import keras
import tensorflow as tf
from absl import logging

from official_bert.io import operating_system

_MB = 1e6


def peak_memory() -> dict[str, float]:
    """Returns the peak of resident memory and, with GPUs, of the fullest GPU, in megabytes of
    10^6 bytes. Windows does not say the resident memory.
    """
    peak = {}
    resident_bytes = operating_system.peak_memory_bytes()
    if resident_bytes is not None:
        peak["memory_mb"] = resident_bytes / _MB
    if gpus := tf.config.list_logical_devices("GPU"):
        peaks = [tf.config.experimental.get_memory_info(gpu.name)["peak"] for gpu in gpus]
        peak["gpu_memory_mb"] = max(peaks) / _MB
    return peak


def forget_models() -> None:
    """Lets go of what TensorFlow and Keras keep of models, so that their weights can be freed."""
    try:
        # The table of gradients, which has no public name, holds a custom one, and with it a
        # model's graph, for good.
        from tensorflow.python.framework.ops import gradient_registry

        gradients = gradient_registry._registry
    except (ImportError, AttributeError):
        logging.warning(
            "This TensorFlow keeps every model of a search in memory; run large searches in parts"
        )
        gradients = {}
    for name in [name for name in gradients if name.startswith("CustomGradient-")]:
        del gradients[name]
    keras.backend.clear_session()  # collects garbage, too
