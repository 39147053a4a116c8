"""Dropout without state: the mask follows from a seed, so that a resumed run draws what it would have drawn.

The one file of this room that names TensorFlow; at rate 0 it is not used at all.
"""

_STRIDE = 0x9E3779B1  # odd, about 2^32 divided by the golden ratio


def dropout(x, rate: float, seed, index: int):
    """Inverted dropout.

    Each decision takes 16 bits of a philox stream compared as integers: XLA and plain TensorFlow then draw the
    same mask, which they do not for uniform floats. The rate is met to 1/2^17.

    Args:
        x: float tensor of any shape.
        rate: share of the values that become 0, in [0, 1).
        seed: int32[2], another one for every step, replica and micro-batch; None leaves `x` as it is.
        index: place of this call in the model: calls of one step must not share a mask.

    Returns:
        A tensor like `x`, the kept values divided by 1 - rate.
    """
    if seed is None or not rate:
        return x
    import tensorflow as tf

    # The generator scrambles its seed, so any other seed gives an unrelated stream; the stride keeps the places
    # of one seed apart from those of the seeds next to it.
    seed = seed + tf.constant([(index * _STRIDE + 2**31) % 2**32 - 2**31, 0], tf.int32)
    count = tf.size(x)
    words = tf.random.stateless_uniform(
        [(count + 1) // 2], seed, minval=None, maxval=None, dtype=tf.uint32, alg="philox"
    )
    draws = tf.reshape(tf.bitcast(words, tf.uint16), [-1])[:count]
    keep = tf.reshape(draws, tf.shape(x)) >= tf.constant(round(rate * 2**16), tf.uint16)
    return tf.where(keep, x * (1.0 / (1.0 - rate)), tf.zeros([], x.dtype))


def draw_seed():
    """A dropout seed of its own for a call that was given none.

    Returns:
        int32[2].
    """
    import tensorflow as tf

    return tf.random.uniform([2], minval=tf.int32.min, maxval=tf.int32.max, dtype=tf.int32)
