"""Stateless dropout: the masks depend only on a seed, so a resumed run draws the same masks as an uninterrupted one.

This is the only module of `modeling` that uses TensorFlow, which it imports only where dropout happens.
"""

_STRIDE = 0x9E3779B1  # odd, about 2^32 divided by the golden ratio


def dropout(x, rate: float, seed, index: int):
    """Applies inverted dropout.

    Each decision compares 16 bits of a philox stream with the rate, as integers. XLA and plain TensorFlow then draw
    the same mask, which is not the case for uniform floats. The effective rate differs from `rate` by at most 1/2^17.

    Args:
        x: float tensor of any shape.
        rate: the probability that a value becomes 0, in [0, 1).
        seed: int32[2], different for every step, replica and micro-batch; None means no dropout.

    Returns:
        A tensor like `x`; the kept values are divided by 1 - rate.
    """
    if seed is None or not rate:
        return x
    import tensorflow as tf

    # The generator scrambles its seed, so two different seeds give unrelated streams. The stride keeps the seeds of
    # the dropouts of one step different from those of steps with adjacent seeds.
    seed = seed + tf.constant([(index * _STRIDE + 2**31) % 2**32 - 2**31, 0], tf.int32)
    count = tf.size(x)
    words = tf.random.stateless_uniform(
        [(count + 1) // 2], seed, minval=None, maxval=None, dtype=tf.uint32, alg="philox"
    )
    draws = tf.reshape(tf.bitcast(words, tf.uint16), [-1])[:count]
    keep = tf.reshape(draws, tf.shape(x)) >= tf.constant(round(rate * 2**16), tf.uint16)
    return tf.where(keep, x * (1.0 / (1.0 - rate)), tf.zeros([], x.dtype))


def draw_seed():
    """Draws a dropout seed, int32[2], for a call without one."""
    import tensorflow as tf

    return tf.random.uniform([2], minval=tf.int32.min, maxval=tf.int32.max, dtype=tf.int32)
