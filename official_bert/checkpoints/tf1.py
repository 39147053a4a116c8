"""Reads and writes TF1 name-based checkpoints: three files with a common prefix that hold tensors by name.

In: a prefix. Out: a Tf1Checkpoint, which gives the tensors. `write` takes tensors by name and writes files that a TF1
program can restore. An incomplete file never has a final name.
"""

import contextlib
import os
import re

import numpy as np
import tensorflow as tf

from official_bert.checkpoints import damage
from official_bert.errors import InputError

_gfile = tf.io.gfile
_REMEDY = "copy its files anew or name another checkpoint"
_READING_FAILS = (tf.errors.OpError, ValueError, RuntimeError, IndexError)


class Tf1Checkpoint:
    """A TF1 checkpoint, whose tensors are read by name.

    Attributes:
        path: the prefix of the checkpoint.
        folder: the folder that contains it.
        shapes: name -> shape as a tuple of ints, sorted by name.
        dtypes: name -> name of the type.
    """

    def __init__(self, prefix: str):
        """Opens the checkpoint with this prefix.

        Raises:
            InputError: the checkpoint cannot be read; damage.Damaged if a file is missing or damaged.
        """
        self.path, self.folder = prefix, os.path.dirname(prefix)
        try:
            self._reader = tf.train.load_checkpoint(prefix)
        except _READING_FAILS as error:
            raise _failure(prefix, "cannot be read as a checkpoint", f"{prefix}.index", error) from None
        shapes = self._reader.get_variable_to_shape_map()
        self.shapes = {name: tuple(shapes[name]) for name in sorted(shapes)}
        dtypes = self._reader.get_variable_to_dtype_map()
        self.dtypes = {name: dtype.name for name, dtype in dtypes.items()}

    def read(self, name: str) -> np.ndarray:
        """Returns the tensor with this name.

        Raises:
            InputError: its data cannot be read; damage.Damaged if it is missing or damaged.
        """
        try:
            return np.asarray(self._reader.get_tensor(name))
        except _READING_FAILS as error:
            file = damage.data_file(self.path)
            raise _failure(self.path, f"{name} cannot be read", file, error) from None


def check_objects(prefix: str):
    """Reads all of an object-based checkpoint, which may hold the state of iterators, to see whether it is whole.

    Args:
        prefix: the prefix of a checkpoint that was sealed (damage.py), or that an earlier version wrote.

    Raises:
        InputError: the checkpoint cannot be read; damage.Damaged if a file is missing or damaged.
    """
    dtypes, file = Tf1Checkpoint(prefix).dtypes, damage.data_file(prefix)
    try:
        if fault := damage.fault_of_seal(prefix):
            raise tf.errors.DataLossError(None, None, fault)
        with tf.device("CPU:0"):
            types = [tf.as_dtype(name) for name in dtypes.values()]
            tf.raw_ops.RestoreV2(
                prefix=prefix, tensor_names=list(dtypes), shape_and_slices=[""] * len(dtypes), dtypes=types
            )
    except tf.errors.OpError as error:
        raise _failure(prefix, "cannot be read", file, error) from None


def _failure(prefix: str, what: str, file: str, error: Exception) -> InputError:
    reason = _brief(error)
    message = f"{prefix}: {what} ({reason}); {_REMEDY}"
    return damage.Damaged(message, file, reason) if damage.is_damage(file) else InputError(message)


def write(prefix: str, tensors: dict):
    """Writes a checkpoint that a TF1 program can read.

    Args:
        prefix: the prefix of its files.
        tensors: arrays, tensors or variables by name; of a mirrored variable one copy is written.

    Raises:
        InputError: the files cannot be written.
    """
    names = sorted(tensors)
    with tf.device("CPU:0"), replacing(prefix) as temporary:
        values = [tf.convert_to_tensor(tensors[name]) for name in names]
        tf.raw_ops.SaveV2(
            prefix=temporary, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values
        )


@contextlib.contextmanager
def replacing(prefix: str):
    """Yields a temporary prefix in a folder of its own; on success the files written there are renamed to `prefix`.

    A checkpoint exists if its index file does. Therefore an old index is deleted first, and the new one is renamed
    last.

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
            f"{prefix}: cannot be written ({_brief(error)}); make room or name another folder"
        ) from error
    finally:
        with contextlib.suppress(tf.errors.OpError):
            _remove_folder(folder)


def remove(prefix: str):
    """Deletes the files of a checkpoint, the index first: without it, the rest does not count as a checkpoint."""
    own = re.compile(re.escape(os.path.basename(prefix)) + r"\.(index|meta|data-\d+-of-\d+)")
    folder = os.path.dirname(prefix)
    names = [name for name in _gfile.listdir(folder or ".") if own.fullmatch(name)]
    for name in sorted(names, key=lambda name: not name.endswith(".index")):
        _gfile.remove(os.path.join(folder, name))


def _remove_folder(folder: str):
    if _gfile.exists(folder):
        _gfile.rmtree(folder)


def _brief(error: Exception) -> str:
    message = (getattr(error, "message", None) or str(error)).strip().splitlines()[0]
    return re.sub(r"\{\{.*?\}\} | \[Op:\w+\]", "", message)  # removes the names of TensorFlow's nodes
