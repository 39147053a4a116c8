"""Checkpoints of TF1: reads, validates and writes files of named weights.

A checkpoint that we write ends with a checksum of its bytes, because TensorFlow has none for the
lengths in the state of an input.
"""

import contextlib
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from official_bert.io import files
from official_bert.io.errors import InputError, brief

_MARK = b"checksum"
_CHECKSUM = struct.Struct("<8sI")
_gfile = tf.io.gfile


class Corrupt(InputError):
    """A file of a checkpoint is missing, truncated, or contains other bytes than were written."""

    def __init__(self, message: str, file: str, reason: str):
        """Makes the error.

        Args:
            message: the message.
            file: the path of the file.
            reason: the reason alone, for the log.
        """
        super().__init__(message)
        self.file = file
        self.reason = reason


def data_file(prefix: str) -> str:
    """Returns the path of a checkpoint's data file, or a pattern if there are several.

    Args:
        prefix: the prefix of the checkpoint.
    """
    paths = _gfile.glob(f"{prefix}.data-*")
    if len(paths) > 1:
        return f"{prefix}.data-*"
    return paths[0] if paths else f"{prefix}.data-00000-of-00001"


def is_corrupt(file: str) -> bool:
    """Returns whether a file is corrupt or missing, and not only out of reach or forbidden.

    Args:
        file: the path of a file that could not be read.
    """
    try:
        with _gfile.GFile(file, "rb") as opened_file:
            opened_file.read(1)
    except tf.errors.NotFoundError:
        return True
    except tf.errors.OpError:
        return False
    return True


def append_checksum(prefix: str) -> None:
    """Appends the checksum to the data file of a checkpoint.

    Args:
        prefix: the prefix of a checkpoint with one data file.
    """
    path = data_file(prefix)
    with _gfile.GFile(path, "rb") as file:
        content = file.read()
    checksum = _CHECKSUM.pack(_MARK, zlib.crc32(content))
    # The file is written again, because some remote file systems cannot append.
    with _gfile.GFile(path, "wb") as file:
        file.write(content + checksum)


def find_checksum_fault(prefix: str) -> str | None:
    """Compares the data file of a checkpoint with its checksum.

    Args:
        prefix: the prefix of the checkpoint.

    Returns:
        What is wrong; None if the file is intact, or has no checksum.
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
    """A checkpoint of any format."""

    @property
    def path(self) -> str:
        """The path of the checkpoint."""
        ...

    @property
    def dtypes(self) -> Mapping[str, str]:
        """TF1 name -> the name of the type."""
        ...

    def read(self, name: str) -> np.ndarray:
        """Reads a tensor by its TF1 name.

        Args:
            name: the TF1 name of the tensor, a key of `dtypes`.
        """
        ...


def check_type(checkpoint: Readable, name: str, is_float: bool = True) -> None:
    """Checks the type of a tensor.

    Args:
        checkpoint: the checkpoint.
        name: the TF1 name of the tensor.
        is_float: whether it is a weight, and not a step.

    Raises:
        InputError: the type is not supported.
    """
    supported_types = _FLOATS if is_float else _INTEGERS
    stored_type = checkpoint.dtypes[name]
    if stored_type not in supported_types:
        raise InputError(
            f"{checkpoint.path}: {name} has the type {stored_type}, which is none of "
            f"{', '.join(supported_types)}; convert the checkpoint to float32 with the program "
            "that wrote it"
        )


def read_weight(checkpoint: Readable, name: str) -> np.ndarray:
    """Reads a weight as float32.

    Args:
        checkpoint: the checkpoint.
        name: the TF1 name of the weight.

    Raises:
        InputError: it cannot be read, or a value is not finite or absurdly large.
    """
    # A float64 beyond float32 becomes infinite, which is refused.
    with np.errstate(over="ignore"):
        weight = np.asarray(checkpoint.read(name), np.float32)
    if not _is_valid(weight):
        raise InputError(
            f"{checkpoint.path}: {name} holds {_format_invalid_value(weight)}, so the checkpoint "
            "is corrupt or of a run that diverged; give an earlier checkpoint"
        )
    return weight


def find_invalid(variables: Mapping[str, tf.Variable]) -> str | None:
    """Finds a floating-point variable with a value that is not finite or absurdly large.

    The sum of squares takes one pass over a variable on its device. For NaN and infinity it is not
    below any limit. Only if the sum exceeds the limit are the values compared on the host.

    Args:
        variables: the variables by name.

    Returns:
        The name and a value of the first such variable, as a text; None if all are valid.
    """
    floats = {
        name: variable
        for name, variable in variables.items()
        if tf.as_dtype(variable.dtype).is_floating
    }
    # All computations start before the first result is needed.
    half_sums = [_compute_half_squared_norm(variable) for variable in floats.values()]
    # Half the largest value, squared, leaves room for the rounding of float32.
    limit = LARGEST_WEIGHT**2 / 4
    for (name, variable), half_sum in zip(floats.items(), half_sums, strict=True):
        if not float(half_sum) <= limit:
            value = tf.convert_to_tensor(variable).numpy()
            if not _is_valid(value):
                return f"{name} holds {_format_invalid_value(value)}"
    return None


def _compute_half_squared_norm(variable: tf.Variable) -> tf.Tensor:
    value = tf.convert_to_tensor(variable)
    # Without a device TensorFlow would use a GPU for a value on the host. The name of the device
    # must not name a worker, because each worker calls itself localhost.
    device = tf.DeviceSpec.from_string(value.backing_device)
    with tf.device(f"{device.device_type}:{device.device_index}"):
        return tf.nn.l2_loss(value)


def copy_to_host(variables: Mapping[str, tf.Variable]) -> dict[str, tf.Tensor]:
    """Returns the present values of variables, in the memory of the host.

    On a CPU nothing is copied: while the returned tensor exists, the next assignment of its
    variable allocates other memory.

    Args:
        variables: the variables by name. A mirrored one has the value of one copy.
    """
    with tf.device("CPU:0"):
        return {
            name: tf.identity(tf.convert_to_tensor(variable))
            for name, variable in variables.items()
        }


def _is_valid(weight: np.ndarray) -> bool:
    """Returns whether no value is NaN, infinite or absurdly large.

    The maximum of an array with NaN is NaN, which fails the comparison.
    """
    return not weight.size or bool(
        weight.max() <= LARGEST_WEIGHT and weight.min() >= -LARGEST_WEIGHT
    )


def _format_invalid_value(weight: np.ndarray) -> str:
    return f"{weight[~(np.abs(weight) <= LARGEST_WEIGHT)].flat[0]:g}"


_HINT = "copy its files again or name another checkpoint"
_READING_FAILS = (tf.errors.OpError, ValueError, RuntimeError, IndexError)


class Tf1Checkpoint:
    """A TF1 checkpoint, whose tensors are read by name.

    Attributes:
        path: the prefix.
        shapes: name -> shape, sorted by name.
        dtypes: name -> the name of the type.
    """

    def __init__(self, prefix: str):
        """Opens a checkpoint.

        Args:
            prefix: the prefix of its files.

        Raises:
            InputError: it is corrupt, or cannot be read.
        """
        self.path = prefix
        for file in _gfile.glob([f"{prefix}.index", f"{prefix}.data-*"]):
            files.check_model_file(file)
        try:
            self._reader = tf.train.load_checkpoint(prefix)
        except _READING_FAILS as error:
            raise _make_error(
                prefix, "cannot be read as a checkpoint", f"{prefix}.index", error
            ) from None
        shapes = self._reader.get_variable_to_shape_map()
        self.shapes = {name: tuple(shapes[name]) for name in sorted(shapes)}
        dtypes = self._reader.get_variable_to_dtype_map()
        self.dtypes = {name: dtype.name for name, dtype in dtypes.items()}

    def read(self, name: str) -> np.ndarray:
        """Reads a tensor by its name.

        Args:
            name: the name of the tensor, a key of `dtypes`.

        Raises:
            InputError: the tensor cannot be read.
        """
        try:
            return np.asarray(self._reader.get_tensor(name))
        except _READING_FAILS as error:
            file = data_file(self.path)
            raise _make_error(self.path, f"{name} cannot be read", file, error) from None


def check_objects(prefix: str) -> None:
    """Reads all of an object-based checkpoint, which may contain the state of iterators.

    Args:
        prefix: the prefix of the checkpoint.

    Raises:
        InputError: it is corrupt, or cannot be read.
    """
    dtypes = Tf1Checkpoint(prefix).dtypes
    file = data_file(prefix)
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
        raise _make_error(prefix, "cannot be read", file, error) from None


def _make_error(prefix: str, what: str, file: str, error: Exception) -> InputError:
    reason = brief(error)
    message = f"{prefix}: {what} ({reason}); {_HINT}"
    return Corrupt(message, file, reason) if is_corrupt(file) else InputError(message)


def write(prefix: str, tensors: Mapping[str, Any]) -> None:
    """Writes a checkpoint that TF1 can read.

    Args:
        prefix: the prefix of the checkpoint.
        tensors: the arrays, tensors or variables by name. Of a mirrored variable, one copy is
            written.

    Raises:
        InputError: the files cannot be written.
    """
    names = sorted(tensors)
    with tf.device("CPU:0"), replacing(prefix) as temporary:
        values = [tf.convert_to_tensor(tensors[name]) for name in names]
        tf.raw_ops.SaveV2(
            prefix=temporary,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=values,
        )


@contextlib.contextmanager
def replacing(prefix: str) -> Iterator[str]:
    """Replaces a checkpoint by the files that the block writes.

    A checkpoint exists if its index file does. Therefore an old index is deleted first, and the new
    one is renamed last.

    Args:
        prefix: the prefix of the checkpoint.

    Yields:
        A temporary prefix in a separate folder. If the block succeeds, its files are renamed.

    Raises:
        InputError: the files cannot be written.
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


def remove(prefix: str) -> None:
    """Deletes the files of a checkpoint.

    The index is deleted first. Without it, the other files do not count as a checkpoint.

    Args:
        prefix: the prefix of the checkpoint.
    """
    pattern = re.compile(re.escape(os.path.basename(prefix)) + r"\.(index|meta|data-\d+-of-\d+)")
    folder = os.path.dirname(prefix)
    names = [name for name in _gfile.listdir(folder or ".") if pattern.fullmatch(name)]
    for name in sorted(names, key=lambda name: not name.endswith(".index")):
        _gfile.remove(os.path.join(folder, name))


def _remove_folder(folder: str):
    if _gfile.exists(folder):
        _gfile.rmtree(folder)
