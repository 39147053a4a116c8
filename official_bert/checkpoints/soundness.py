"""Which tensors can be weights: floats that are finite and not absurdly large."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import tensorflow as tf

from official_bert.errors import InputError

# Neighbouring float32 values lie 0.06 apart here: no learning rate moves such a weight, and no valid model has one.
LARGEST_WEIGHT = 1e6
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_INTEGERS = ("int32", "int64")


class Readable(Protocol):
    """A checkpoint of any format: its path, the names of its types by TF1 name, and its tensors."""

    path: str
    dtypes: Mapping[str, str]

    def read(self, name: str) -> np.ndarray: ...


def check_type(checkpoint: Readable, name: str, is_float: bool = True):
    """Raises InputError if the type of a tensor is not that of a weight, or of a step."""
    known, stored = _FLOATS if is_float else _INTEGERS, checkpoint.dtypes[name]
    if stored not in known:
        raise InputError(
            f"{checkpoint.path}: {name} has the type {stored}, which is none of {', '.join(known)}; convert the "
            "checkpoint to float32 with the program that wrote it"
        )


def read_weight(checkpoint: Readable, name: str) -> np.ndarray:
    """Reads a weight as float32, and raises InputError if a value is unsound."""
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf, which is refused
        weight = np.asarray(checkpoint.read(name), np.float32)
    if not _is_sound(weight):
        raise InputError(
            f"{checkpoint.path}: {name} holds {_unsound_value(weight)}, so the checkpoint is damaged or of a run that "
            "diverged; give an earlier checkpoint"
        )
    return weight


def find_unsound(variables: Mapping[str, tf.Variable]) -> str | None:
    """Returns the name and a value of the first unsound floating variable; None if all are sound."""
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
