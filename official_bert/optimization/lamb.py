"""LAMB: Adam whose update of each weight matrix has a norm in proportion to that of the matrix.

The slots, their names and the schedule are those of AdamWeightDecayOptimizer, so checkpoints have the same form.
"""

from __future__ import annotations

import tensorflow as tf

from official_bert.optimization.adam import AdamWeightDecayOptimizer, adam_direction, compiled_by_xla


class LambOptimizer(AdamWeightDecayOptimizer):
    """You et al. (2020), algorithm 2, with bias-corrected moments.

        r = m^ / (sqrt(v^) + epsilon) + decay w        w' = w - lr (|w| / |r|) r

    Biases and layer norms, which are excluded from the decay, have the factor 1 instead of |w| / |r|, as in the
    authors' code; so has a variable while |w| or |r| is 0.
    """

    def __init__(self, *arguments, name: str = "LambOptimizer", bias_correction: bool = True, **others):
        """Makes an optimizer without variables; the arguments are those of AdamWeightDecayOptimizer.

        The bias of the moments is corrected whatever `bias_correction` is.
        """
        super().__init__(*arguments, name=name, bias_correction=True, **others)

    def _new_values(self, name, weight, m, v, gradient, rate):
        is_decayed = self.decays(name)
        decay = tf.constant(self.weight_decay_rate if is_decayed else 0.0)
        step = tf.cast(self.global_step + 1, tf.float32)
        update = _compiled_scaled if is_decayed else _compiled_plain
        return update(weight, m, v, gradient, rate, decay, self.beta_1, self.beta_2, self.epsilon, step)


def lamb_updated(weight, m, v, gradient, rate, decay, beta_1: float, beta_2: float, epsilon: float, step, is_scaled):
    """Returns the weight and its slots after the update; the arguments are those of `updated` and `is_scaled`."""
    direction, m, v = adam_direction(m, v, gradient, beta_1, beta_2, epsilon, step)
    direction += decay * weight
    if is_scaled:
        weight_norm, norm = tf.norm(weight), tf.norm(direction)
        is_usable = tf.logical_and(weight_norm > 0.0, norm > 0.0)
        direction *= tf.where(is_usable, weight_norm / tf.where(is_usable, norm, 1.0), 1.0)
    return weight - rate * direction, m, v


@compiled_by_xla
def _compiled_scaled(*arguments):
    return lamb_updated(*arguments, is_scaled=True)


@compiled_by_xla
def _compiled_plain(*arguments):
    return lamb_updated(*arguments, is_scaled=False)
