"""LAMB: Adam whose update of each weight matrix has a norm in proportion to that of the matrix.

The slots, their names and the schedule are those of AdamWeightDecayOptimizer, so checkpoints have
the same form.
"""

import tensorflow as tf

from official_bert.optimization.adam import AdamWeightDecayOptimizer, adam_direction, updated


class LambOptimizer(AdamWeightDecayOptimizer):
    """You et al. (2020), algorithm 2, with bias-corrected moments.

        r = m^ / (sqrt(v^) + epsilon) + decay w        w' = w - lr (|w| / |r|) r

    Biases and layer norms, which are excluded from the decay, have the factor 1 instead of |w| /
    |r|, as in the authors' code; so has a variable while |w| or |r| is 0.
    """

    def __init__(
        self, *arguments, name: str = "LambOptimizer", bias_correction: bool = True, **others
    ):
        """Makes an optimizer without variables; the arguments are those of
        AdamWeightDecayOptimizer.

        The bias of the moments is corrected whatever `bias_correction` is.
        """
        super().__init__(*arguments, name=name, bias_correction=True, **others)

    def _rule(self, name):
        return lamb_updated if self.decays(name) else updated


def lamb_updated(
    weight: tf.Tensor,
    m: tf.Tensor,
    v: tf.Tensor,
    gradient: tf.Tensor,
    rate: tf.Tensor,
    decay: tf.Tensor,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    step: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns a decayed weight and its two moments after an update of LAMB.

    The arguments are those of `adam.updated`.
    """
    direction, m, v = adam_direction(m, v, gradient, beta_1, beta_2, epsilon, step)
    direction += decay * weight
    weight_norm = tf.norm(weight)
    norm = tf.norm(direction)
    is_usable = tf.logical_and(weight_norm > 0.0, norm > 0.0)
    ratio = weight_norm / tf.where(is_usable, norm, 1.0)
    direction *= tf.where(is_usable, ratio, 1.0)
    return weight - rate * direction, m, v
