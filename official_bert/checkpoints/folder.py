"""Finds and deletes the checkpoints in the folder of a run, and writes its `checkpoint` file.

In: the folder. Out: the prefixes of the checkpoints, such as the newest one.
"""

import functools
import json
import os
import re

import tensorflow as tf
from absl import logging

from official_bert.io import files, writing
from official_bert.io.errors import InputError
from official_bert.model_dir import BEST_FOLDER, STATE_NAME

INPUT_PREFIX = "input.ckpt-"
# Files that a killed run may leave: an unfinished checkpoint, an unfinished list, or files of a
# step without a checkpoint.
_PART = re.compile(
    r"(model|input)\.ckpt-\d+(-\d+)?\.writing|\.?checkpoint\.tmp-.*"
    r"|model\.ckpt-(?P<model_step>\d+)\.data-.*|input\.ckpt-(?P<input_step>\d+)-\d+\.(index|data-.*)"
)
# The files of one checkpoint.
_PART_FILE = re.compile(r"(?P<prefix>.+)\.(data-\d{5}-of-\d{5}|index|meta)")
_gfile = tf.io.gfile


class CorruptList(InputError):
    """A folder's `checkpoint` file cannot be read."""


def find_prefix(path: str) -> str | None:
    """Returns the prefix of a TF1 checkpoint; None if there is none.

    Args:
        path: the prefix, or a folder. Of a folder it is the newest prefix in its `checkpoint` file
            or, without that file, the only prefix.

    Raises:
        InputError: the folder has several checkpoints, or the path is a part of a checkpoint.
    """
    if _gfile.exists(f"{path}.index"):
        return path
    if not _gfile.isdir(path):
        _refuse_part(path)
        # A checkpoint in the first format of TensorFlow is a single file.
        is_checkpoint = _gfile.exists(path) and not path.endswith(".index")
        return path if is_checkpoint else None
    newest = latest_checkpoint(path)
    if newest:
        return newest
    names = _list_names(path)
    indexed = [name.removesuffix(".index") for name in names if name.endswith(".index")]
    # Another program's .index file has no data. If a checkpoint has lost its data, the reader
    # refuses it.
    complete = [prefix for prefix in indexed if _has_data(prefix, names)]
    candidates = complete or [prefix for prefix in indexed if ".ckpt" in prefix]
    prefixes = [prefix for prefix in candidates if not prefix.startswith(INPUT_PREFIX)]
    prefixes.sort()
    if len(prefixes) > 1:
        raise InputError(
            f"{path}: holds several checkpoints ({', '.join(prefixes)}); name one of them"
        )
    return os.path.join(path, prefixes[0]) if prefixes else None


def _has_data(prefix: str, names: list[str]) -> bool:
    return any(name.startswith(f"{prefix}.data-") for name in names)


def _refuse_part(path: str):
    """Refuses a file that is only a part of a checkpoint, with the name of the whole."""
    match = _PART_FILE.fullmatch(path)
    if match and _gfile.exists(path):
        prefix = match["prefix"]
        raise InputError(
            f"{path}: is a part of the checkpoint {prefix}, whose weights are found by "
            f"the prefix of its files; give {prefix}"
        )


def list_paths(folder: str) -> list[str]:
    """Returns the prefixes in a folder's `checkpoint` file, oldest first, the current one last.

    Only the names in the file count. After a folder is moved or copied, the file may name paths in
    another folder.

    Args:
        folder: the folder of the run.

    Raises:
        CorruptList: the file cannot be read.
    """
    return _join_folder(folder, _read_list(folder))


def _join_folder(folder: str, paths: list[str]) -> list[str]:
    return [os.path.join(folder, os.path.basename(path)) for path in paths]


def list_checkpoints(folder: str) -> list[str]:
    """Returns those of `list_paths` that exist.

    Args:
        folder: the folder of the run.
    """
    return [path for path in list_paths(folder) if _gfile.exists(f"{path}.index")]


def latest_checkpoint(folder: str) -> str | None:
    """Returns the prefix of the newest checkpoint in a folder's `checkpoint` file; None for none.

    If the newest one does not exist, the next older one is returned, with a warning.

    Args:
        folder: the folder of the run.

    Raises:
        InputError: the file cannot be read, or its newest checkpoint is in another folder.
    """
    # The file is read once, because the chief of several workers may replace it at any time.
    listed_paths = _read_list(folder)
    if not listed_paths:
        return None
    paths = _join_folder(folder, listed_paths)
    existing_paths = [path for path in paths if _gfile.exists(f"{path}.index")]
    state_file = os.path.join(folder, STATE_NAME)
    current = listed_paths[-1]
    if paths[-1] in existing_paths:
        return paths[-1]
    if _gfile.exists(f"{current}.index"):
        raise InputError(
            f"{state_file}: names {current}, a checkpoint of another folder; give that folder, or "
            "write the name of a checkpoint of this folder into the file"
        )
    if not existing_paths:
        return None
    current_name = os.path.basename(current)
    _warn_once(
        f"{state_file} names {current_name}, whose .index file is not there: the "
        f"older {existing_paths[-1]} is taken"
    )
    return existing_paths[-1]


def newest(folder: str) -> str | None:
    """Returns the prefix of the newest checkpoint of a run; None if it has not saved one.

    Args:
        folder: the folder of the run.

    Raises:
        InputError: there is a `checkpoint` file, and none of its checkpoints exists.
    """
    newest_path = latest_checkpoint(folder)
    state_file = os.path.join(folder, STATE_NAME)
    if newest_path is None and _gfile.exists(state_file):
        raise InputError(
            f"{state_file}: names no existing checkpoint; put it back, or delete this file to "
            "start from the beginning"
        )
    return newest_path


def check_not_lost(folder: str) -> None:
    """Checks that a folder with a run's checkpoints has its `checkpoint` file.

    Without the file a run would start from the beginning, and a reader of the best checkpoint would
    use the newest one instead. A checkpoint of step 0 contains no update. A kill during the first
    save leaves it without the file.

    Args:
        folder: the folder of the run.

    Raises:
        InputError: the file is missing.
    """
    names = _list_names(folder)
    matches = [re.fullmatch(r"model\.ckpt-(\d+)\.index", name) for name in names]
    steps = [int(match[1]) for match in matches if match]
    last_step = max(steps, default=0)
    state_file = os.path.join(folder, STATE_NAME)
    if last_step and not _gfile.exists(state_file):
        raise InputError(
            f"{state_file}: is gone, but model.ckpt-{last_step} is there; write "
            "model_checkpoint_path: "
            f'"model.ckpt-{last_step}" into this file to use it, or give another folder'
        )


def has_index(folder: str) -> bool:
    """Returns whether a folder has a TF1 checkpoint, which its `checkpoint` file may not list.

    Args:
        folder: the path of the folder.
    """
    return any(name.endswith(".index") for name in _list_names(folder))


def remove_leftovers(folder: str) -> None:
    """Deletes the parts of checkpoints that a killed run left.

    Complete checkpoints stay, and so do those that the `checkpoint` file lists without an index.

    Args:
        folder: the folder of the run.
    """
    names = _list_names(folder)
    complete = {name.removesuffix(".index") for name in names if name.endswith(".index")}
    complete |= {os.path.basename(path) for path in _read_list(folder)}
    for name in names:
        part = _PART.fullmatch(name)
        if not part:
            continue
        step = part["model_step"] or part["input_step"]
        if f"model.ckpt-{step}" not in complete:
            _delete(os.path.join(folder, name))


def _list_names(folder: str) -> list[str]:
    """Returns the names in a folder; none if there is no folder."""
    if not _gfile.isdir(folder):
        return []
    return [name.rstrip("/") for name in _gfile.listdir(folder)]


def _delete(path: str):
    if _gfile.isdir(path):
        _gfile.rmtree(path)
    else:
        _gfile.remove(path)


def _read_list(folder: str) -> list[str]:
    """Returns the paths in a folder's `checkpoint` file, the current one last."""
    state_file = os.path.join(folder, STATE_NAME)
    # A folder with the name of the file belongs to another program.
    if not _gfile.exists(state_file) or _gfile.isdir(state_file):
        return []
    files.check_model_file(state_file)
    try:
        state = tf.train.get_checkpoint_state(folder)
    except ValueError:  # an empty file, or a binary one
        state = None
    if state is None:
        raise CorruptList(
            f'{state_file}: is corrupt; write model_checkpoint_path: "<the newest model.ckpt-...>" '
            "into it, or delete it if you do not need this folder's checkpoints"
        )
    current = state.model_checkpoint_path
    older = [path for path in state.all_model_checkpoint_paths if path != current]
    return [*older, current]


@functools.cache
def _warn_once(sentence: str):
    logging.warning(sentence)


def run_folders(folder: str) -> tuple[str, str]:
    """Returns an output_dir, and its subfolder for the best checkpoint.

    Args:
        folder: the output_dir.
    """
    return folder, os.path.join(folder, BEST_FOLDER)


def remove_all(folder: str) -> None:
    """Deletes every checkpoint of a folder, and the parts of one that a killed run left.

    Args:
        folder: the folder of the run, whose other files stay.
    """
    # The list is deleted first, so that it never names a deleted checkpoint.
    for name in sorted(_list_names(folder), key=lambda name: name != STATE_NAME):
        if name == STATE_NAME or name.startswith(("model.ckpt-", INPUT_PREFIX)):
            _delete(os.path.join(folder, name))


def write_state(folder: str, names: list[str]) -> None:
    """Writes the `checkpoint` file.

    Args:
        folder: the folder of the run.
        names: the prefixes without the folder, so that the folder can be moved. The current one is
            the last.
    """
    quoted_names = [json.dumps(name) for name in names]
    state_file = os.path.join(folder, STATE_NAME)
    with writing.replacing(state_file) as file:
        file.write(f"model_checkpoint_path: {quoted_names[-1]}\n")
        for name in quoted_names:
            file.write(f"all_model_checkpoint_paths: {name}\n")
