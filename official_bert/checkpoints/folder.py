"""The folder of a run's checkpoints: which of them is the newest, the best subfolder, and the
`checkpoint` file.
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
# What belongs to no whole checkpoint: an unfinished one, an unfinished list, or files of a step
# without a checkpoint.
_PART = re.compile(
    r"(model|input)\.ckpt-\d+(-\d+)?\.writing|\.?checkpoint\.tmp-.*"
    r"|model\.ckpt-(?P<model_step>\d+)\.data-.*|input\.ckpt-(?P<input_step>\d+)-\d+\.(index|data-.*)"
)
# What the files of one checkpoint are called behind its prefix.
_PART_FILE = re.compile(r"(?P<prefix>.+)\.(data-\d{5}-of-\d{5}|index|meta)")
_gfile = tf.io.gfile


class CorruptList(InputError):
    """A folder's `checkpoint` file cannot be read."""


def find_prefix(path: str) -> str | None:
    """Returns the prefix that a path is, or that its folder holds; None if there is no TF1
    checkpoint.

    Of a folder it is the newest prefix in its `checkpoint` file or, without that file, the only
    prefix.
    """
    if _gfile.exists(f"{path}.index"):
        return path
    if not _gfile.isdir(path):
        _refuse_part(path)
        # A checkpoint in the first format of TensorFlow is a single file.
        return path if _gfile.exists(path) and not path.endswith(".index") else None
    newest = latest_checkpoint(path)
    if newest:
        return newest
    names = _list_names(path)
    prefixes = [name.removesuffix(".index") for name in names if name.endswith(".index")]
    # Another program's index of something else has no data. That of a checkpoint that lost its data
    # is named later.
    with_data = [prefix for prefix in prefixes if _has_data(prefix, names)]
    prefixes = with_data or [prefix for prefix in prefixes if ".ckpt" in prefix]
    prefixes = sorted(prefix for prefix in prefixes if not prefix.startswith(INPUT_PREFIX))
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
        raise InputError(
            f"{path}: is a part of the checkpoint {match['prefix']}, whose weights are found by "
            f"the prefix of its files; give {match['prefix']}"
        )


def list_paths(folder: str) -> list[str]:
    """Returns the prefixes in a folder that its `checkpoint` file lists, oldest first, the current
    one last.

    Only names count, not folders: the file of a folder that was moved or copied may hold paths into
    another one.
    """
    return _join_folder(folder, _listed(folder))


def _join_folder(folder: str, listed: list[str]) -> list[str]:
    return [os.path.join(folder, os.path.basename(path)) for path in listed]


def list_checkpoints(folder: str) -> list[str]:
    """Returns those of `list_paths` that exist."""
    return [path for path in list_paths(folder) if _gfile.exists(f"{path}.index")]


def latest_checkpoint(folder: str) -> str | None:
    """Returns the prefix of the newest checkpoint in the folder's `checkpoint` file, or None.

    If the newest one is not there, an older one is, and a warning says so.
    """
    # Once, since the chief of several workers may replace the file at any time.
    listed = _listed(folder)
    existing_paths = [
        path for path in _join_folder(folder, listed) if _gfile.exists(f"{path}.index")
    ]
    if not listed:
        return None
    state_file, current = os.path.join(folder, STATE_NAME), listed[-1]
    if existing_paths and os.path.basename(existing_paths[-1]) == os.path.basename(current):
        return existing_paths[-1]
    if _gfile.exists(f"{current}.index"):
        raise InputError(
            f"{state_file}: names {current}, a checkpoint of another folder; give that folder, or "
            "write the name of a checkpoint of this folder into the file"
        )
    if not existing_paths:
        return None
    _warn_once(
        f"{state_file} names {os.path.basename(current)}, whose .index file is not there: the "
        f"older {existing_paths[-1]} is taken"
    )
    return existing_paths[-1]


def newest(folder: str) -> str | None:
    """Returns the prefix of the newest checkpoint; None if none was saved yet, of which a
    corrupt list is no sign.
    """
    newest_path = latest_checkpoint(folder)
    state_file = os.path.join(folder, STATE_NAME)
    if newest_path is None and _gfile.exists(state_file):
        raise InputError(
            f"{state_file}: names no existing checkpoint; put it back, or delete this file to "
            "start anew"
        )
    return newest_path


def check_not_lost(folder: str):
    """Refuses a folder with a run's checkpoints and without the `checkpoint` file.

    A run would start anew there, and a reader of the best checkpoint would take the newest one
    instead. A checkpoint of step 0 holds no update, and without the file it is what a kill during
    the first save leaves.
    """
    matches = [re.fullmatch(r"model\.ckpt-(\d+)\.index", name) for name in _list_names(folder)]
    last_step = max((int(match[1]) for match in matches if match), default=0)
    state_file = os.path.join(folder, STATE_NAME)
    if last_step and not _gfile.exists(state_file):
        raise InputError(
            f"{state_file}: is gone, but model.ckpt-{last_step} is there; write "
            "model_checkpoint_path: "
            f'"model.ckpt-{last_step}" into this file to use it, or give another folder'
        )


def has_index(folder: str) -> bool:
    """Returns whether a folder has a TF1 checkpoint, listed or not."""
    return any(name.endswith(".index") for name in _list_names(folder))


def remove_leftovers(folder: str):
    """Deletes the parts of checkpoints that a killed run left; whole checkpoints stay, listed or
    not.
    """
    names_there = _list_names(folder)
    whole = {name.removesuffix(".index") for name in names_there if name.endswith(".index")}
    whole |= {os.path.basename(path) for path in _listed(folder)}  # also one whose .index was lost
    for name in names_there:
        part = _PART.fullmatch(name)
        step = part and (part["model_step"] or part["input_step"])
        if part and f"model.ckpt-{step}" not in whole:
            _delete(os.path.join(folder, name))


def _list_names(folder: str) -> list[str]:
    return [name.rstrip("/") for name in _gfile.listdir(folder)] if _gfile.isdir(folder) else []


def _delete(path: str):
    (_gfile.rmtree if _gfile.isdir(path) else _gfile.remove)(path)


def _listed(folder: str) -> list[str]:
    """Returns the paths in a folder's `checkpoint` file, the current one last; none without the
    file.
    """
    state_file = os.path.join(folder, STATE_NAME)
    if not _gfile.exists(state_file) or _gfile.isdir(state_file):  # a folder is of another program
        return []
    files.check_model_file(state_file)
    try:
        state = tf.train.get_checkpoint_state(folder)
    except ValueError:  # an empty file, or a binary one
        state = None
    if state is None:
        raise CorruptList(
            f'{state_file}: is corrupt; write model_checkpoint_path: "<the newest model.ckpt-...>" into it, or '
            "delete it if this folder's checkpoints are not wanted"
        )
    current = state.model_checkpoint_path
    return [*(path for path in state.all_model_checkpoint_paths if path != current), current]


@functools.cache
def _warn_once(sentence: str):
    logging.warning(sentence)


def run_folders(folder: str) -> tuple[str, str]:
    """An output_dir, and its subfolder for the best checkpoint."""
    return folder, os.path.join(folder, BEST_FOLDER)


def remove_all(folder: str):
    """Deletes every checkpoint of a folder, also the parts that a killed run left of one; other
    files stay.
    """
    # The list goes first.
    for name in sorted(_list_names(folder), key=lambda name: name != STATE_NAME):
        if name == STATE_NAME or name.startswith(("model.ckpt-", INPUT_PREFIX)):
            _delete(os.path.join(folder, name))


def write_state(folder: str, names: list[str]):
    """Writes the `checkpoint` file: prefixes relative to the folder, so that it can be moved,
    the current one last.
    """
    with writing.replacing(os.path.join(folder, STATE_NAME)) as file:
        file.write(f"model_checkpoint_path: {json.dumps(names[-1])}\n")
        file.writelines(f"all_model_checkpoint_paths: {json.dumps(name)}\n" for name in names)
