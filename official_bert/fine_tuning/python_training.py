"""Trainings that Python starts with data in memory: their arguments, and the folder they write to.

`Classifier.train` and the trainings of extensions, such as `SentenceEncoder.train`, call it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from official_bert import catalog
from official_bert.fine_tuning import earlier_training
from official_bert.fine_tuning.run import fine_tune
from official_bert.io import progress
from official_bert.io.errors import InputError, did_you_mean
from official_bert.model_dir import has_checkpoints
from official_bert.model_source import resolve
from official_bert.options.fields import value_type
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.serving.predictor import check_value
from official_bert.training import run_log

# Names of other libraries, and ours.
_OTHER_NAMES = {
    "epochs": "num_train_epochs",
    "num_epochs": "num_train_epochs",
    "batch_size": "train_batch_size",
    "lr": "learning_rate",
    "max_length": "max_seq_length",
    "seed": "random_seed",
    "optimizer": "optimizer_type",
}


def list_arguments(command: str, excluded: Collection[str]) -> dict[str, dataclasses.Field]:
    """Returns the fields of the flags of a command that are arguments of its function, by name.

    Args:
        command: the name of the command.
        excluded: the names of the flags that are none.
    """
    fields = dataclasses.fields(catalog.options_class(command))
    return {field.name: field for field in fields if field.name not in excluded}


def check_flags(
    flags: Mapping[str, Any], fields: Mapping[str, dataclasses.Field], function: str, help_name: str
) -> dict[str, Any]:
    """Returns the values of flags, which must be known and as their flags take them.

    Args:
        flags: the values by name.
        fields: the result of `list_arguments`.
        function: the name of the function that gets them, for messages.
        help_name: the command whose help lists the flags, such as "run_classifier.py".

    Raises:
        InputError: a flag is unknown, or would refuse its value.
    """
    for name, value in flags.items():
        if name not in fields:
            remedy = did_you_mean(name, fields) or f"{help_name} --helpfull lists the flags"
            if other_name := _OTHER_NAMES.get(name):
                remedy = f"did you mean {other_name}?"
            raise InputError(f"{name}: {function} takes no such flag; {remedy}")
        check_value(fields[name], value)
    return {
        name: float(value) if value_type(fields[name]) is float else value
        for name, value in flags.items()
    }


class Handling(NamedTuple):
    """What is done with a folder that holds another training, and whether the progress is shown.

    Attributes:
        overwrite: whether a training on other data or with other flags is replaced.
        resume: whether such a training goes on, on these data and with these flags.
        verbose: 1 shows the progress and the result; 0 shows nothing.
    """

    overwrite: bool
    resume: bool
    verbose: int


def train_in_folder(
    options: FineTuningOptions,
    family: str,
    sets: Mapping[str, Any],
    training_set_digest: str,
    handling: Handling,
) -> None:
    """Trains on sets in memory, unless the folder holds a training on others.

    Args:
        options: the flags of the run.
        family: the family of its task.
        sets: the sets in memory, as `fine_tune` takes them.
        training_set_digest: the digest of the content of the training set.
        handling: what is done with a folder that holds another training.

    Raises:
        InputError: the folder holds another training, or the training fails.
    """
    overwrite, resume, verbose = handling
    if overwrite and resume:
        raise InputError("overwrite, resume: exclude each other; give one of the two")
    differences = ""
    if has_checkpoints(options.output_dir) and not resume:
        now = dataclasses.asdict(resolve(options, family).options)
        differences = earlier_training.find_differences(
            options.output_dir, now, training_set_digest, type(options)
        )
    if differences and not overwrite:
        raise InputError(
            f"{options.output_dir}: holds a model that was trained differently: {differences}; "
            "give overwrite=True to replace it, resume=True to go on with its training, or "
            "another folder"
        )
    replacing = contextlib.nullcontext()
    if differences or earlier_training.was_killed_while_replacing(options.output_dir):
        replacing = earlier_training.replaced(options.output_dir, holds_other=bool(differences))
    with replacing, progress.shown_in_python(bool(verbose)):
        score = fine_tune(options, sets, {run_log.ROWS_DIGEST: training_set_digest})
        if score:
            progress.show_result(f"{options.output_dir}: {score.metric} {score.value:.4g}")
