"""Checkpoints of TF1: reads, validates and writes files of named weights.

A checkpoint that we write ends with a checksum of its bytes, because TensorFlow has none for the
lengths in the state of an input.
"""

import contextlib
import os
import re
import struct
import zlib
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import tensorflow as tf

from official_bert.io import files
from official_bert.io.errors import InputError, brief

_MARK = b"checksum"
_CHECKSUM = struct.Struct("<8sI")
_gfile = tf.io.gfile


class Corrupt(InputError):
    """A file of a checkpoint is missing, cut off, or holds other bytes than were written."""

    def __init__(self, message: str, file: str, reason: str):
        super().__init__(message)
        self.file, self.reason = file, reason


def data_file(prefix: str) -> str:
    """Returns the path of a checkpoint's data; with a pattern for the number where there are
    several files.
    """
    found = _gfile.glob(f"{prefix}.data-*")
    return f"{prefix}.data-*" if len(found) > 1 else (found or [f"{prefix}.data-00000-of-00001"])[0]


def is_corrupt(file: str) -> bool:
    """Tells whether a file that could not be read is corrupt or missing, and not only out of
    reach or forbidden.
    """
    try:
        with _gfile.GFile(file, "rb") as opened:
            opened.read(1)
    except tf.errors.NotFoundError:
        return True
    except tf.errors.OpError:
        return False
    return True


def append_checksum(prefix: str):
    """Appends the checksum to the data file of a checkpoint that has one data file."""
    path = data_file(prefix)
    with _gfile.GFile(path, "rb") as file:
        content = file.read()
    # As a whole, because some remote file systems cannot append.
    with _gfile.GFile(path, "wb") as file:
        file.write(content + _CHECKSUM.pack(_MARK, zlib.crc32(content)))


def find_checksum_fault(prefix: str) -> str | None:
    """Returns what is wrong with the data file of a checkpoint, by its checksum; None also of
    one without it.
    """
    with _gfile.GFile(data_file(prefix), "rb") as file:
        content = file.read()
    end = content[-_CHECKSUM.size :]
    if not any(end):
        return "its end is empty"
    if len(end) == _CHECKSUM.size and end.startswith(_MARK):
        _, checksum = _CHECKSUM.unpack(end)
        if checksum != zlib.crc32(content[: -_CHECKSUM.size]):
            return "its bytes do not fit their checksum"
    return None


# Neighbouring float32 values lie 0.06 apart here: no learning rate moves such a weight, and no
# valid model has one.
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
            f"{checkpoint.path}: {name} has the type {stored}, which is none of "
            f"{', '.join(known)}; convert the checkpoint to float32 with the program that wrote it"
        )


def read_weight(checkpoint: Readable, name: str) -> np.ndarray:
    """Reads a weight as float32, and raises InputError if a value is none of a valid model."""
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf, which is refused
        weight = np.asarray(checkpoint.read(name), np.float32)
    if not _is_valid(weight):
        raise InputError(
            f"{checkpoint.path}: {name} holds {_invalid_value(weight)}, so the checkpoint is "
            "corrupt or of a run that diverged; give an earlier checkpoint"
        )
    return weight


def find_invalid(variables: Mapping[str, tf.Variable]) -> str | None:
    """Returns the name and a value of the first invalid floating variable; None if all are valid.

    A variable is looked through on the host only if the sum of its squares, which takes one pass
    over it where it lies, does not show that all values are valid: of NaN and infinity the sum is
    neither below a limit.
    """
    floats = {name: each for name, each in variables.items() if tf.as_dtype(each.dtype).is_floating}
    # All begin before any is awaited.
    half_sums = [_half_sum_of_squares(variable) for variable in floats.values()]
    for (name, variable), half_sum in zip(floats.items(), half_sums, strict=True):
        # Half of what one value may be, since float32 is rounded.
        if not float(half_sum) <= LARGEST_WEIGHT**2 / 4:
            value = tf.convert_to_tensor(variable).numpy()
            if not _is_valid(value):
                return f"{name} holds {_invalid_value(value)}"
    return None


def _half_sum_of_squares(variable: tf.Variable) -> tf.Tensor:
    value = tf.convert_to_tensor(variable)
    # TensorFlow would take a GPU for what lies on the host; of several workers, the value calls its
    # own localhost.
    lies_on = tf.DeviceSpec.from_string(value.backing_device)
    with tf.device(f"{lies_on.device_type}:{lies_on.device_index}"):
        return tf.nn.l2_loss(value)


def copy_to_host(variables: Mapping[str, tf.Variable]) -> dict[str, tf.Tensor]:
    """Returns the values that variables have now, in the memory of the host; of a mirrored variable
    those of one copy.

    Nothing is copied on a CPU: a variable whose value somebody holds takes other memory at its next
    assignment.
    """
    with tf.device("CPU:0"):
        return {
            name: tf.identity(tf.convert_to_tensor(variable))
            for name, variable in variables.items()
        }


def _is_valid(weight: np.ndarray) -> bool:
    """Tells whether all values may be a model's; NaN, which is the maximum of what it is in,
    fails the comparison.
    """
    return not weight.size or bool(
        weight.max() <= LARGEST_WEIGHT and weight.min() >= -LARGEST_WEIGHT
    )


def _invalid_value(weight: np.ndarray) -> str:
    return f"{weight[~(np.abs(weight) <= LARGEST_WEIGHT)].flat[0]:g}"


_REMEDY = "copy its files anew or name another checkpoint"
_READING_FAILS = (tf.errors.OpError, ValueError, RuntimeError, IndexError)


class Tf1Checkpoint:
    """A TF1 checkpoint, whose tensors are read by name.

    `path` is the prefix; `shapes`, name -> tuple of ints, is sorted by name; `dtypes` holds the
    names of the types.
    """

    def __init__(self, prefix: str):
        self.path = prefix
        for file in _gfile.glob([f"{prefix}.index", f"{prefix}.data-*"]):
            files.check_model_file(file)
        try:
            self._reader = tf.train.load_checkpoint(prefix)
        except _READING_FAILS as error:
            raise _failure(
                prefix, "cannot be read as a checkpoint", f"{prefix}.index", error
            ) from None
        shapes = self._reader.get_variable_to_shape_map()
        self.shapes = {name: tuple(shapes[name]) for name in sorted(shapes)}
        dtypes = self._reader.get_variable_to_dtype_map()
        self.dtypes = {name: dtype.name for name, dtype in dtypes.items()}

    def read(self, name: str) -> np.ndarray:
        try:
            return np.asarray(self._reader.get_tensor(name))
        except _READING_FAILS as error:
            file = data_file(self.path)
            raise _failure(self.path, f"{name} cannot be read", file, error) from None


def check_objects(prefix: str):
    """Reads all of an object-based checkpoint, which may hold the state of iterators, to see
    whether it is whole.
    """
    dtypes, file = Tf1Checkpoint(prefix).dtypes, data_file(prefix)
    try:
        if fault := find_checksum_fault(prefix):
            raise tf.errors.DataLossError(None, None, fault)
        with tf.device("CPU:0"):
            types = [tf.as_dtype(name) for name in dtypes.values()]
            tf.raw_ops.RestoreV2(
                prefix=prefix,
                tensor_names=list(dtypes),
                shape_and_slices=[""] * len(dtypes),
                dtypes=types,
            )
    except tf.errors.OpError as error:
        raise _failure(prefix, "cannot be read", file, error) from None


def _failure(prefix: str, what: str, file: str, error: Exception) -> InputError:
    reason = brief(error)
    message = f"{prefix}: {what} ({reason}); {_REMEDY}"
    return Corrupt(message, file, reason) if is_corrupt(file) else InputError(message)


def write(prefix: str, tensors: dict):
    """Writes arrays, tensors or variables by name, so that TF1 can read them; of a mirrored
    variable one copy.
    """
    names = sorted(tensors)
    with tf.device("CPU:0"), replacing(prefix) as temporary:
        values = [tf.convert_to_tensor(tensors[name]) for name in names]
        tf.raw_ops.SaveV2(
            prefix=temporary, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values
        )


@contextlib.contextmanager
def replacing(prefix: str):
    """Yields a temporary prefix in a folder of its own; on success the files written there are
    renamed to `prefix`.

    A checkpoint exists if its index file does. Therefore an old index is deleted first, and the new
    one is renamed last.
    """
    folder = f"{prefix}.writing"
    try:
        _remove_folder(folder)  # a killed run may have left it
        _gfile.makedirs(folder)
        yield f"{folder}/part"
        if _gfile.exists(f"{prefix}.index"):
            _gfile.remove(f"{prefix}.index")
        parts = sorted(_gfile.listdir(folder), key=lambda name: name.endswith(".index"))
        for name in parts:
            _gfile.rename(f"{folder}/{name}", prefix + name.removeprefix("part"), overwrite=True)
    except tf.errors.OpError as error:
        raise InputError(
            f"{prefix}: cannot be written ({brief(error)}); make room or name another folder"
        ) from error
    finally:
        with contextlib.suppress(tf.errors.OpError):
            _remove_folder(folder)


def remove(prefix: str):
    """Deletes the files of a checkpoint, the index first: without it, the rest does not count as
    a checkpoint.
    """
    own = re.compile(re.escape(os.path.basename(prefix)) + r"\.(index|meta|data-\d+-of-\d+)")
    folder = os.path.dirname(prefix)
    names = [name for name in _gfile.listdir(folder or ".") if own.fullmatch(name)]
    for name in sorted(names, key=lambda name: not name.endswith(".index")):
        _gfile.remove(os.path.join(folder, name))


def _remove_folder(folder: str):
    if _gfile.exists(folder):
        _gfile.rmtree(folder)
