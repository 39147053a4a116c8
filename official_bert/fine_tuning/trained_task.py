"""Compares the task of a run and its labels with those of the checkpoint that it loads."""

from collections.abc import Sequence

from absl import logging

from official_bert.checkpoints.folder import holds_checkpoint
from official_bert.io.errors import InputError
from official_bert.model_dir import ModelFolder
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.tasks import registry


def read_labels(options: FineTuningOptions) -> list[str] | None:
    """Reads the labels beside the checkpoint that the run loads; None if there are none.

    Raises:
        InputError: the checkpoints of output_dir are damaged, or the file is.
    """
    folder = _model_folder(options)
    return folder.labels() if folder else None


def check_task(options: FineTuningOptions, task_name: str):
    """Refuses to train a folder's model on with another task, and warns of its evaluation on another.

    Raises:
        InputError: output_dir holds a model that was trained on another task.
    """
    goes_on = holds_checkpoint(options.output_dir)
    folder = _model_folder(options) if goes_on or not options.do_train else None
    record = folder.task() if folder else None
    if record is None or registry.is_same(task_name, record.task_name):
        return
    if options.do_train:
        raise InputError(
            f"--task_name={task_name}: {folder.task_file} says {record.task_name}, on which the model in --output_dir "
            "was trained; give the folder as --model, and another --output_dir"
        )
    logging.warning(
        "The model was trained on %s, as %s says, and not on %s: its results are those of another task",
        record.task_name,
        folder.task_file,
        task_name,
    )


def check_labels(options: FineTuningOptions, labels: Sequence[str] | None):
    """Refuses labels that differ from those of a trained model.

    A training run that starts anew may load a model with other labels, because it trains the outputs for the new ones.

    Args:
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
        f"{_model_folder(options).labels_file}: the model's outputs stand for {', '.join(known)}, but the task's "
        f"labels are {', '.join(names)}; name the labels in the model's order, or {remedy}"
    )


def _model_folder(options: FineTuningOptions) -> ModelFolder | None:
    """Returns the folder of the checkpoint that the run loads, which is output_dir if it has one."""
    if holds_checkpoint(options.output_dir):
        return ModelFolder(options.output_dir)
    return ModelFolder(options.init_checkpoint) if options.init_checkpoint else None
