"""Gradients between the backward pass and the update."""

from __future__ import annotations

import tensorflow as tf

CLIP_NORM = 1.0


def dense_gradients(gradients: list) -> list:
    """Gradients as plain tensors, those of embedding lookups included.

    A lookup's gradient comes as one row for each occurrence of an id; the norm of those rows is not the norm of
    the gradient. None stays None.
    """
    return [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]


def clip_by_global_norm(gradients: list, clip_norm: float = CLIP_NORM) -> list:
    """Scales all gradients so that their common norm is at most `clip_norm`.

    Args:
        gradients: dense tensors, or None where a variable has no gradient.
        clip_norm: the largest norm that passes unscaled.
    """
    clipped, _ = tf.clip_by_global_norm(gradients, clip_norm)
    return clipped
