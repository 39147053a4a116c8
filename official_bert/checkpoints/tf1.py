"""Reads and writes TF1 name-based checkpoints: three files with a common prefix that hold tensors by name.

In: a prefix, or a folder with a `checkpoint` file or a single prefix. Out: a Tf1Checkpoint, which gives the tensors.
`write` takes tensors by name and writes files that a TF1 program can restore. An incomplete file never has a final
name.
"""

import contextlib
import json
import os
import re

import numpy as np
import tensorflow as tf

from official_bert import files
from official_bert.errors import InputError

STATE_FILE = "checkpoint"
INPUT_PREFIX = "input.ckpt-"
_gfile = tf.io.gfile
_REMEDY = "copy its files anew or name another checkpoint"
_READING_FAILS = (tf.errors.OpError, ValueError, RuntimeError, IndexError)


class Tf1Checkpoint:
    """A TF1 checkpoint, whose tensors are read by name.

    Attributes:
        path: the prefix of the checkpoint.
        folder: the folder that contains it.
        shapes: name -> shape as a tuple of ints, sorted by name.
    """

    def __init__(self, prefix: str):
        """Opens the checkpoint with this prefix.

        Raises:
            InputError: a file is missing or damaged.
        """
        self.path, self.folder = prefix, os.path.dirname(prefix)
        try:
            self._reader = tf.train.load_checkpoint(prefix)
        except _READING_FAILS as error:
            raise InputError(
                f"{prefix}: cannot be read as a checkpoint ({_brief(error)}); {_REMEDY}"
            ) from None
        shapes = self._reader.get_variable_to_shape_map()
        self.shapes = {name: tuple(shapes[name]) for name in sorted(shapes)}

    def read(self, name: str) -> np.ndarray:
        """Returns the tensor with this name.

        Raises:
            InputError: its data is missing or damaged.
        """
        try:
            return np.asarray(self._reader.get_tensor(name))
        except _READING_FAILS as error:
            raise InputError(f"{self.path}: {name} cannot be read ({_brief(error)}); {_REMEDY}") from None


def find_prefix(path: str) -> str | None:
    """Finds the prefix of the checkpoint that a path names.

    Args:
        path: a prefix or a folder. Of a folder it is the newest prefix in its `checkpoint` file or, without that file,
            the only prefix.

    Returns:
        The prefix, or None if there is no TF1 checkpoint.

    Raises:
        InputError: the folder has several prefixes and no `checkpoint` file.
    """
    if _gfile.exists(f"{path}.index"):
        return path
    if not _gfile.isdir(path):
        # A checkpoint in the first format of TensorFlow is a single file.
        return path if _gfile.exists(path) and not path.endswith(".index") else None
    newest = latest_checkpoint(path)
    if newest:
        return newest
    found = [name.removesuffix(".index") for name in _gfile.listdir(path) if name.endswith(".index")]
    found = sorted(name for name in found if not name.startswith(INPUT_PREFIX))
    if len(found) > 1:
        raise InputError(f"{path}: holds several checkpoints ({', '.join(found)}); name one of them")
    return os.path.join(path, found[0]) if found else None


def checkpoint_paths(folder: str) -> list[str]:
    """Returns the existing prefixes that a folder's `checkpoint` file lists, oldest first, the current one last.

    The file of a folder that was moved or copied may hold absolute paths into another folder. The function therefore
    prefers a checkpoint of the same name in this folder.

    Raises:
        InputError: the `checkpoint` file is damaged.
    """
    state_file = os.path.join(folder, STATE_FILE)
    if not _gfile.exists(state_file):
        return []
    try:
        state = tf.train.get_checkpoint_state(folder)
    except ValueError:  # an empty file, or a binary one
        state = None
    if state is None:
        raise InputError(
            f'{state_file}: is damaged; write model_checkpoint_path: "<the newest model.ckpt-...>" into it, or '
            "delete it if this folder's checkpoints are not wanted"
        )
    listed = [path for path in state.all_model_checkpoint_paths if path != state.model_checkpoint_path]
    found = []
    for path in [*listed, state.model_checkpoint_path]:
        candidates = [os.path.join(folder, os.path.basename(path)), path]
        found += [candidate for candidate in candidates if _gfile.exists(f"{candidate}.index")][:1]
    return found


def latest_checkpoint(folder: str) -> str | None:
    """Returns the prefix of the newest checkpoint in the folder's `checkpoint` file, or None."""
    return (checkpoint_paths(folder) or [None])[-1]


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
        raise InputError(f"{prefix}: cannot be written ({_brief(error)})") from error
    finally:
        with contextlib.suppress(tf.errors.OpError):
            _remove_folder(folder)


def write_state(folder: str, names: list[str]):
    """Writes the `checkpoint` file.

    Args:
        folder: the folder of the file.
        names: prefixes relative to the folder, so that it can be moved; the last one is the current checkpoint.
    """
    with files.replacing(os.path.join(folder, STATE_FILE)) as file:
        file.write(f"model_checkpoint_path: {json.dumps(names[-1])}\n")
        file.writelines(f"all_model_checkpoint_paths: {json.dumps(name)}\n" for name in names)


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
