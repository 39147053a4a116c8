"""Which tensors can be weights: floats that are finite and not absurdly large.

In: tensors of a checkpoint that is read, or the variables of a run that is about to be saved. Out: nothing where all
is well, else an error that names the tensor.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import tensorflow as tf

from official_bert.errors import InputError

# Neighbouring float32 values lie 0.06 apart here: no learning rate moves such a weight, and no sound model has one.
LARGEST_WEIGHT = 1e6
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_INTEGERS = ("int32", "int64")


class Readable(Protocol):
    """A checkpoint of any format.

    Attributes:
        path: the path of the checkpoint.
        dtypes: TF1 name -> name of the type; a type that numpy lacks keeps the name of the format.
    """

    path: str
    dtypes: Mapping[str, str]

    def read(self, name: str) -> np.ndarray: ...


def check_type(checkpoint: Readable, name: str, is_float: bool = True):
    """Refuses a tensor whose type is not that of a weight, or of a step.

    Raises:
        InputError: the type is another one; the message names the tensor.
    """
    known, stored = _FLOATS if is_float else _INTEGERS, checkpoint.dtypes[name]
    if stored not in known:
        raise InputError(
            f"{checkpoint.path}: {name} has the type {stored}, which is none of {', '.join(known)}; convert the "
            "checkpoint to float32 with the program that wrote it"
        )


def read_weight(checkpoint: Readable, name: str) -> np.ndarray:
    """Reads a weight.

    Returns:
        The tensor as float32.

    Raises:
        InputError: the tensor has a value that no sound model has.
    """
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf, which is refused
        weight = np.asarray(checkpoint.read(name), np.float32)
    if not _is_sound(weight):
        raise InputError(
            f"{checkpoint.path}: {name} holds {_unsound_value(weight)}, so the checkpoint is damaged or of a run that "
            "diverged; give an earlier checkpoint"
        )
    return weight


def find_unsound(variables: Mapping[str, tf.Variable]) -> str | None:
    """Looks through the values of variables.

    Args:
        variables: tf.Variables, Keras or mirrored variables by name; integers are left out.

    Returns:
        None if all values are sound, else the name and a value of an unsound variable.
    """
    for name, variable in variables.items():
        if tf.as_dtype(variable.dtype).is_floating:
            value = tf.convert_to_tensor(variable).numpy()
            if not _is_sound(value):
                return f"{name} holds {_unsound_value(value)}"
    return None


def _is_sound(weight: np.ndarray) -> bool:
    """Tells whether all values are sound; NaN, which is the maximum of what it is in, fails the comparison."""
    return not weight.size or bool(weight.max() <= LARGEST_WEIGHT and weight.min() >= -LARGEST_WEIGHT)


def _unsound_value(weight: np.ndarray) -> str:
    return f"{weight[~(np.abs(weight) <= LARGEST_WEIGHT)].flat[0]:g}"
