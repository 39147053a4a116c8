"""Reads and writes the labels of a task, which are kept beside its checkpoints.

In: the options of a fine-tuning script. Out, in output_dir and in output_dir/best: labels.txt, in the order of the
model's outputs.
"""

import os
from collections.abc import Sequence

from official_bert import files, reading, writing
from official_bert.checkpoints.folder import holds_checkpoint, with_best
from official_bert.errors import InputError
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.tasks.base import LABELS_FILE


def write_labels(options: FineTuningOptions, labels: Sequence[str]):
    """Saves the labels before training begins."""
    folders = with_best(options.output_dir) if options.evaluates_during_training else [options.output_dir]
    for folder in folders:
        files.make_folder(folder)
        with writing.replacing(os.path.join(folder, LABELS_FILE)) as file:
            file.writelines(f"{label}\n" for label in labels)


def read_labels(options: FineTuningOptions) -> list[str] | None:
    """Reads the labels beside the checkpoint that the run loads; None if there are none.

    Raises:
        InputError: the checkpoints of output_dir are damaged, or the file is.
    """
    path = _path(options)
    return _read(path) if path else None


def read_labels_beside(checkpoint: str) -> list[str] | None:
    """Reads the labels in the folder of a checkpoint, given as a folder or a prefix; None if there are none."""
    path = _path_beside(checkpoint)
    return _read(path) if path else None


def _read(path: str) -> list[str]:
    labels = list(reading.read_lines(path))
    if not labels or "" in labels or len(set(labels)) < len(labels):
        raise InputError(
            f"{path}: must name each label once, on a line of its own; restore what the training wrote"
        )
    return labels


def check_labels(options: FineTuningOptions, labels: Sequence[str] | None):
    """Refuses labels that differ from those of a trained model.

    A training run that starts anew may load a model with other labels, because it trains the outputs for the new ones.

    Args:
        options: the options of the script.
        labels: the labels of the task, in order; None in regression.

    Raises:
        InputError: the labels differ from those beside the checkpoint.
    """
    if labels is None or (options.do_train and not holds_checkpoint(options.output_dir)):
        return
    names, known = [str(label) for label in labels], read_labels(options)
    if known in (None, names):
        return
    remedy = "give another --output_dir" if options.do_train else "take a checkpoint of this task"
    raise InputError(
        f"{_path(options)}: the model's outputs stand for {', '.join(known)}, but the task's labels are "
        f"{', '.join(names)}; name the labels in the model's order, or {remedy}"
    )


def _path(options: FineTuningOptions) -> str | None:
    """Returns the file beside the checkpoint that the run loads, which is that of output_dir if it has one."""
    if holds_checkpoint(options.output_dir):
        path = os.path.join(options.output_dir, LABELS_FILE)
        return path if files.exists(path) else None
    return _path_beside(options.init_checkpoint) if options.init_checkpoint else None


def _path_beside(checkpoint: str) -> str | None:
    folders = (checkpoint, os.path.dirname(checkpoint) or os.curdir)
    paths = (os.path.join(folder, LABELS_FILE) for folder in folders)
    return next(filter(files.exists, paths), None)
