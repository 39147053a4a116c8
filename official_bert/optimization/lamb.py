"""LAMB: Adam whose update of each weight matrix has a norm in proportion to that of the matrix.

The slots, their names and the schedule are those of AdamWeightDecayOptimizer, so checkpoints have
the same form.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from official_bert.optimization.adam import (
    AdamConstants,
    AdamWeightDecayOptimizer,
    Moments,
    adam_direction,
    updated,
)


class LambOptimizer(AdamWeightDecayOptimizer):
    """You et al. (2020), algorithm 2, with bias-corrected moments.

        r = m^ / (sqrt(v^) + epsilon) + decay w        w' = w - lr (|w| / |r|) r

    Biases and layer norms, which are excluded from the decay, have the factor 1 instead of |w| /
    |r|, as in the authors' code; so has a variable while |w| or |r| is 0.
    """

    def __init__(
        self,
        *arguments: Any,
        name: str = "LambOptimizer",
        bias_correction: bool = True,
        **others: Any,
    ):
        """Makes an optimizer without variables; the arguments are those of
        AdamWeightDecayOptimizer.

        The bias of the moments is corrected whatever `bias_correction` is.
        """
        super().__init__(*arguments, name=name, bias_correction=True, **others)

    def _rule(self, name: str) -> Callable:
        return lamb_updated if self.decays(name) else updated


def lamb_updated(
    weight: tf.Tensor,
    moments: Moments,
    gradient: tf.Tensor,
    rate: tf.Tensor,
    decay: tf.Tensor,
    constants: AdamConstants,
) -> tuple[tf.Tensor, Moments]:
    """Returns a decayed weight and its moments after an update of LAMB.

    The arguments are those of `adam.updated`.

    Args:
        weight: float of any shape.
        moments: its moments before the update.
        gradient: float of this shape.
        rate: the learning rate, float[].
        decay: the weight decay rate, float[].
        constants: the constants of the optimizer.
    """
    direction, moments = adam_direction(moments, gradient, constants)
    direction += decay * weight
    weight_norm = tf.norm(weight)
    norm = tf.norm(direction)
    is_usable = tf.logical_and(weight_norm > 0.0, norm > 0.0)
    ratio = weight_norm / tf.where(is_usable, norm, 1.0)
    direction *= tf.where(is_usable, ratio, 1.0)
    return weight - rate * direction, moments
