"""The folder of a run's checkpoints: which of them is the newest, the best subfolder, and the `checkpoint` file.

In: a folder, or a path that may be one. Out: prefixes of the checkpoints that are there.
"""

import json
import os

import tensorflow as tf

from official_bert import files
from official_bert.errors import InputError

BEST_FOLDER = "best"  # the subfolder of an output_dir with the checkpoint that had the best metric
STATE_FILE = "checkpoint"
INPUT_PREFIX = "input.ckpt-"
_gfile = tf.io.gfile


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


def newest(folder: str) -> str | None:
    """Returns the prefix of the newest checkpoint, or None if none was saved yet.

    Raises:
        InputError: a `checkpoint` file that is damaged or names nothing that is there. Starting anew would overwrite
            the checkpoints of the folder.
    """
    found = latest_checkpoint(folder)
    state_file = os.path.join(folder, STATE_FILE)
    if found is None and _gfile.exists(state_file):
        raise InputError(
            f"{state_file}: names no existing checkpoint; put it back, or delete this file to start anew"
        )
    return found


def holds_checkpoint(folder: str) -> bool:
    """Whether a run has saved a checkpoint in its output_dir, or kept its best one there."""
    return bool(folder) and any(map(newest, with_best(folder)))


def with_best(folder: str) -> tuple[str, str]:
    """An output_dir, and its subfolder for the best checkpoint."""
    return folder, os.path.join(folder, BEST_FOLDER)


def remove_all(folder: str):
    """Deletes every checkpoint of a folder, also the parts that a killed run left of one; other files stay."""
    names_there = _gfile.listdir(folder) if _gfile.isdir(folder) else []
    for name in sorted(names_there, key=lambda name: name != STATE_FILE):  # the list goes first
        if name == STATE_FILE or name.startswith(("model.ckpt-", INPUT_PREFIX)):
            path = os.path.join(folder, name)
            (_gfile.rmtree if _gfile.isdir(path) else _gfile.remove)(path)


def write_state(folder: str, names: list[str]):
    """Writes the `checkpoint` file.

    Args:
        folder: the folder of the file.
        names: prefixes relative to the folder, so that it can be moved; the last one is the current checkpoint.
    """
    with files.replacing(os.path.join(folder, STATE_FILE)) as file:
        file.write(f"model_checkpoint_path: {json.dumps(names[-1])}\n")
        file.writelines(f"all_model_checkpoint_paths: {json.dumps(name)}\n" for name in names)
