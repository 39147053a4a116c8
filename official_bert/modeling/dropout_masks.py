"""Draws the masks of dropout: a hash of the seed, the example and the position in the example.

The masks therefore do not depend on how a batch is divided: N replicas, M micro-batches and one
device draw the same ones. A resumed run draws the masks of an uninterrupted run. XLA computes the
hash wherever a mask is used, so that it takes no memory.
"""

import tensorflow as tf

_STRIDE = 0x9E3779B1  # odd, about 2^32 divided by the golden ratio
_COLUMN_CONSTANT = 0x85EBCA6B  # makes the keys of rows and columns differ
_FIRST_FACTOR, _SECOND_FACTOR = 0x7FEB352D, 0x846CA68B  # of the hash
_MAX_UINT32 = 2**32 - 1


def dropout_mask(
    x: tf.Tensor,
    rate: float,
    seed: tf.Tensor,
    index: tf.Tensor | int,
) -> tf.Tensor:
    """Draws a mask, bool like `x`, that depends only on its shape, the seed and the index.

    The mask is a matrix with the last dimension of `x` as columns. Each row and each column has 32
    bits of its own, and each decision is a hash of the two. It compares 32 bits with the rate, as
    integers, so that XLA and plain TensorFlow draw the same mask.

    Args:
        x: a tensor with the shape of the mask. The first dimension is that of the examples, or a
            product of it and other dimensions.
        rate: the share of the values that are False.
        seed: int32[2], another one in every step, or the result of `part_seed`.
        index: the number of the dropout in the model.
    """
    shape = tf.shape(x)
    num_columns = shape[-1]
    num_rows = tf.reduce_prod(shape[:-1])
    row_key, column_key = _make_keys(seed, index)

    rows = tf.range(num_rows)
    rows += _first_row(seed, num_rows)
    rows = _to_uint32(rows)
    row_bits = _mix(rows ^ row_key)
    columns = tf.range(num_columns)
    columns = _to_uint32(columns)
    column_bits = _mix(columns ^ column_key)
    bits = row_bits[:, None] ^ column_bits

    threshold = round(rate * 2**32)
    threshold = min(threshold, _MAX_UINT32)
    # The last step of `_mix` would not change the highest bits.
    bits = _multiply_and_shift(bits)
    keep = bits >= _uint32(threshold)
    return tf.reshape(keep, shape)


def part_seed(
    seed: tf.Tensor,
    first_example: tf.Tensor,
    num_examples: tf.Tensor,
) -> tf.Tensor:
    """Returns the seed of a part of a batch, int32[4].

    The part then has the masks that its examples have in the whole batch.

    Args:
        seed: the seed of the whole batch, int32[2].
        first_example: the number of the part's first example in the batch, int32[].
        num_examples: the number of the part's examples, int32[].
    """
    part = tf.stack([first_example, num_examples])
    return tf.concat([seed, part], axis=0)


def _first_row(seed: tf.Tensor, num_rows: tf.Tensor) -> tf.Tensor:
    """Returns the number of the first row in the mask of the whole batch, int32[]."""
    if seed.shape[0] == 2:
        return tf.constant(0)
    first_example, num_examples = tf.unstack(seed[2:])
    rows_per_example = num_rows // num_examples
    return first_example * rows_per_example


def _make_keys(seed: tf.Tensor, index: tf.Tensor | int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the keys of the rows and of the columns, uint32[] each."""
    words = tf.bitcast(seed, tf.uint32)
    # The stride keeps the seeds of the dropouts of one step different from those of steps with
    # adjacent seeds.
    stride = _uint32(_STRIDE)
    dropout_words = _to_uint32(index) * stride
    first_word, second_word = words[0], words[1]
    first_word += dropout_words
    first_word = _mix(first_word)
    row_key = _mix(first_word ^ second_word)
    column_word = first_word + second_word
    column_word += _uint32(_COLUMN_CONSTANT)
    column_key = _mix(column_word)
    return row_key, column_key


def _mix(bits: tf.Tensor) -> tf.Tensor:
    """Mixes the bits of uint32 values, so that each one influences nearly all others.

    Source: C. Wellons, "Prospecting for hash functions" (2018), the function lowbias32.
    """
    bits = _multiply_and_shift(bits)
    return _xor_shifted(bits, 16)


def _multiply_and_shift(bits: tf.Tensor) -> tf.Tensor:
    """Returns the result of `_mix` without its last step."""
    bits = _xor_shifted(bits, 16)
    bits *= _uint32(_FIRST_FACTOR)
    bits = _xor_shifted(bits, 15)
    return bits * _uint32(_SECOND_FACTOR)


def _xor_shifted(bits: tf.Tensor, count: int) -> tf.Tensor:
    count = _uint32(count)
    shifted = tf.bitwise.right_shift(bits, count)
    return bits ^ shifted


def _to_uint32(values: tf.Tensor | int) -> tf.Tensor:
    return tf.cast(values, tf.uint32)


def _uint32(number: int) -> tf.Tensor:
    return tf.constant(number, tf.uint32)
