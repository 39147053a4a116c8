"""What a folder holds of an earlier training: whether this was another one, and the way to put
its files aside.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from official_bert.fine_tuning import plugin
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.model_dir import has_checkpoints
from official_bert.options.fields import flag_names
from official_bert.training import run_log

# The folder of the files of the earlier training, until the new one is complete.
_ASIDE = ".replaced"
# The files that a training, its evaluations and its predictions write.
_OUTPUT_PATTERNS = """
checkpoint model.ckpt-* input.ckpt-* best run.jsonl task.json labels.txt *.tf_record
eval_results*.txt test_results*.tsv *reliability* events.out.tfevents*
"""


def rows_digest(rows: Iterable[Sequence[Any]]) -> str:
    """Returns a digest of the texts and labels of a set in their order.

    Args:
        rows: the values of each row of the set, as JSON has them.
    """
    digest = hashlib.sha256()
    for values in rows:
        digest.update(json.dumps(values).encode() + b"\n")
    return digest.hexdigest()


def find_differences(
    folder: str, flags: Mapping[str, object], rows_sha256: str, options_class: type
) -> str:
    """Compares a training with the one whose checkpoints a folder holds.

    Args:
        folder: the folder of the earlier training.
        flags: the flags of the new training, by name.
        rows_sha256: the digest of the new training set, by `rows_digest`.
        options_class: the class of the flags of the new training.

    Returns:
        The data and flags in which the two differ, for a message; "" if they differ in none.
    """
    earlier = run_log.trainings(folder)
    if not earlier:
        return "other data and flags, of which its run.jsonl has no line"
    other_data = (
        "" if earlier[-1].get(run_log.ROWS_DIGEST) == rows_sha256 else "other texts or labels"
    )
    names = flag_names(options_class, "changes_training")
    before = earlier[-1].get("flags") or {}
    changed = run_log.changed_flags(before, flags, names=names, options_class=options_class)
    return ", ".join(filter(None, (other_data, changed)))


def was_killed_while_replacing(folder: str) -> bool:
    """Returns whether files of an earlier training are still aside, because the call that replaced
    it was killed.

    Args:
        folder: the folder of the training; a remote folder never has such files.
    """
    return not files.is_remote(folder) and os.path.isdir(os.path.join(folder, _ASIDE))


@contextlib.contextmanager
def replaced(folder: str, holds_other: bool) -> Iterator[None]:
    """Puts the files of an earlier training aside: a context around the new one.

    They are deleted when the new training is complete. They come back if it ends before its first
    checkpoint, as by bad input.

    Args:
        folder: the folder of both trainings, on this machine.
        holds_other: whether the folder holds a training other than the new one; otherwise a killed
            call has put that aside.

    Raises:
        InputError: the folder is remote.
    """
    if files.is_remote(folder):
        raise InputError(
            f"{folder}: overwrite=True is for folders of this machine; delete the folder yourself"
        )
    aside = os.path.join(folder, _ASIDE)
    if holds_other:
        # What the training that is replaced now had itself replaced.
        shutil.rmtree(aside, ignore_errors=True)
        os.mkdir(aside)
        _put_aside(folder, aside)
    try:
        yield
    except BaseException:
        if not has_checkpoints(folder):
            for name in os.listdir(aside):
                target = os.path.join(folder, name)
                if os.path.isdir(target):
                    shutil.rmtree(target)
                os.replace(os.path.join(aside, name), target)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _put_aside(folder: str, aside: str):
    """Moves the files that a training writes."""
    patterns = [*_OUTPUT_PATTERNS.split(), *plugin.output_files()]
    for path in {path for pattern in patterns for path in files.matching(pattern, folder)}:
        os.rename(path, os.path.join(aside, os.path.basename(path)))
