"""Functions of vectors in a graph."""

import functools
from typing import TypeVar

import tensorflow as tf

Fields = TypeVar("Fields")
to_int32 = functools.partial(tf.cast, dtype=tf.int32)


def indices(values: tf.Tensor) -> tf.Tensor:
    """Returns the indices of the values of a vector: int32[values].

    Args:
        values: [values].
    """
    return tf.range(tf.size(values))


def true_indices(is_chosen: tf.Tensor) -> tf.Tensor:
    """Returns the indices of the true values of a vector: int32[true values].

    Args:
        is_chosen: bool[values].
    """
    indices = tf.where(is_chosen)[:, 0]
    return to_int32(indices)


def count_up_to_each(is_chosen: tf.Tensor) -> tf.Tensor:
    """Returns the number of true values up to each value of a vector, including it.

    Args:
        is_chosen: bool[values].
    """
    return tf.cumsum(to_int32(is_chosen))


def previous(values: tf.Tensor, first: bool) -> tf.Tensor:
    """Returns the value before each one of a vector, and `first` for the first one.

    Args:
        values: bool[values].
        first: the value before the first one.
    """
    values = tf.concat([[first], values], 0)
    return values[:-1]


def following(values: tf.Tensor, last: bool | tf.Tensor) -> tf.Tensor:
    """Returns the value behind each one of a vector, and `last` for the last one.

    Args:
        values: [values].
        last: the value behind the last one.
    """
    values = tf.concat([values, [last]], 0)
    return values[1:]


def concat_fields(first: Fields, second: Fields) -> Fields:
    """Appends the values in each field of a named tuple to those of another.

    Args:
        first: a named tuple of vectors.
        second: a named tuple of the same class.
    """

    def concat(*values: tf.Tensor) -> tf.Tensor:
        return tf.concat(values, 0)

    return tf.nest.map_structure(concat, first, second)


def gather_fields(fields: Fields, indices: tf.Tensor) -> Fields:
    """Returns the values at some indices in each field of a named tuple.

    Args:
        fields: a named tuple of vectors.
        indices: the indices, the same in each field.
    """
    return tf.nest.map_structure(lambda values: tf.gather(values, indices), fields)
