"""Functions on gradients between the backward pass and the update."""

from __future__ import annotations

import tensorflow as tf

CLIP_NORM = 1.0


def dense_gradients(gradients: list) -> list:
    """Converts gradients, including those of embedding lookups, to dense tensors; None stays None.

    The gradient of a lookup has one row for each occurrence of an id. The norm of these rows is not the norm of the
    gradient.
    """
    return [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]


def clip_by_global_norm(gradients: list, clip_norm: float = CLIP_NORM, norm=None) -> list:
    """Scales all gradients so that their common norm is at most `clip_norm`.

    Args:
        gradients: dense tensors, or None for a variable without a gradient.
        clip_norm: the largest norm that is not scaled.
        norm: float32[], the common norm, if it is known.
    """
    clipped, _ = tf.clip_by_global_norm(gradients, clip_norm, norm)
    return clipped
