"""TF1 name-based checkpoints: three files under a prefix, tensors by name.

In: a prefix, or a folder with a `checkpoint` file or one prefix; for writing, tensors by name. Out: a
Tf1Checkpoint to read from; for writing, files that a TF1 program restores. Nothing incomplete is ever left under a
final name.
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
    """A checkpoint that is read by name.

    Attributes:
        path: its prefix.
        folder: where it lies.
        shapes: tuple of ints for each name, sorted by name.
    """

    def __init__(self, prefix: str):
        """Opens the checkpoint with this prefix.

        Raises:
            InputError: files that are missing or damaged.
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
        """The tensor of this name.

        Raises:
            InputError: data that is missing or damaged.
        """
        try:
            return np.asarray(self._reader.get_tensor(name))
        except _READING_FAILS as error:
            raise InputError(f"{self.path}: {name} cannot be read ({_brief(error)}); {_REMEDY}") from None


def find_prefix(path: str) -> str | None:
    """The prefix that a path stands for: itself, or a folder's newest by its `checkpoint` file, or its only one.

    Args:
        path: prefix or folder.

    Returns:
        The prefix, or None where there is no TF1 checkpoint.

    Raises:
        InputError: a folder with several prefixes and no `checkpoint` file.
    """
    if _gfile.exists(f"{path}.index"):
        return path
    if not _gfile.isdir(path):
        # A checkpoint of TensorFlow's first format is a single file.
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
    """Prefixes that a folder's `checkpoint` file lists and that exist, oldest first, the current one last.

    The file may hold the absolute paths of a folder that was moved or copied: what lies in this one comes first.

    Raises:
        InputError: a file that is damaged.
    """
    state_file = os.path.join(folder, STATE_FILE)
    if not _gfile.exists(state_file):
        return []
    try:
        state = tf.train.get_checkpoint_state(folder)
    except ValueError:  # an empty file, or one that is no text
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
    """The newest checkpoint by the folder's `checkpoint` file, or None."""
    return (checkpoint_paths(folder) or [None])[-1]


def write(prefix: str, tensors: dict):
    """Writes a checkpoint that a TF1 program reads.

    Args:
        prefix: where its files go.
        tensors: arrays, tensors or variables by name; of a mirrored variable one copy is written.

    Raises:
        InputError: a place that cannot be written to.
    """
    names = sorted(tensors)
    with tf.device("CPU:0"), written_aside(prefix) as aside:
        values = [tf.convert_to_tensor(tensors[name]) for name in names]
        tf.raw_ops.SaveV2(
            prefix=aside, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values
        )


@contextlib.contextmanager
def written_aside(prefix: str):
    """Gives a prefix in a folder of its own; what was written under it takes the name `prefix` on success.

    A checkpoint exists when its index does: an old index goes first and the new one comes last.

    Raises:
        InputError: a place that cannot be written to.
    """
    folder = f"{prefix}.writing"
    try:
        _remove_folder(folder)  # of a run that was killed
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
        folder: where it goes.
        names: prefixes relative to the folder, so that it can be moved; the last is the current one.
    """
    with files.replacing(os.path.join(folder, STATE_FILE)) as file:
        file.write(f"model_checkpoint_path: {json.dumps(names[-1])}\n")
        file.writelines(f"all_model_checkpoint_paths: {json.dumps(name)}\n" for name in names)


def remove(prefix: str):
    """Deletes a checkpoint's files, the index first: what is left by a kill is no checkpoint."""
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
    return re.sub(r"\{\{.*?\}\} | \[Op:\w+\]", "", message)  # names of TensorFlow's own nodes
