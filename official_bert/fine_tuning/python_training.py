"""Trainings that Python starts with data in memory: their arguments, and the folder they write to.

`Classifier.train` and the trainings of extensions, such as `SentenceEncoder.train`, call it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from official_bert import catalog
from official_bert.data.text_tables import Example, make_examples
from official_bert.fine_tuning import earlier_training
from official_bert.fine_tuning.run import fine_tune
from official_bert.io import progress, reading
from official_bert.io.errors import InputError, did_you_mean, naming_arguments
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
        resume: whether such a training resumes, on these data and with these flags.
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
            "give overwrite=True to replace it, resume=True to continue it, or "
            "another folder"
        )
    replacing = contextlib.nullcontext()
    if differences or earlier_training.was_killed_while_replacing(options.output_dir):
        replacing = earlier_training.replaced(options.output_dir, holds_other=bool(differences))
    with replacing, progress.shown_in_python(bool(verbose)):
        score = fine_tune(options, sets, {run_log.ROWS_DIGEST: training_set_digest})
        if score:
            progress.show_result(f"{options.output_dir}: {score.metric} {score.value:.4g}")


class TextTraining(NamedTuple):
    """A function that trains a model on texts in memory.

    Attributes:
        function: the name of the function, for messages.
        command: the command that does the same with files.
        family: the family of its task.
        excluded_flags: the flags of the command that are no arguments of the function.
        replacements: parts of messages about flags, and what they are in a call.
    """

    function: str
    command: str
    family: str
    excluded_flags: Collection[str]
    replacements: Mapping[str, str]


class TextSets(NamedTuple):
    """The texts of a training.

    Attributes:
        texts: the examples of the training set.
        labels: their labels; None for none.
        dev: the examples that the model is evaluated on, or a tuple of them and their labels; None
            for no evaluation.
        data_sets: several sets in place of these, by name; None for one set.
    """

    texts: Iterable | None
    labels: Iterable | None
    dev: Iterable | tuple[Iterable, Iterable | None] | None
    data_sets: Mapping[str, Mapping[str, Any]] | None

    def load(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the examples of the sets train and dev, and the values of further flags.

        Raises:
            InputError: an example is none, or the arguments do not fit each other.
        """
        if self.data_sets is not None:
            if any(value is not None for value in self[:3]):
                raise InputError(
                    "data_sets: does not go with texts, labels and dev; write them into its sets"
                )
            for load_data_sets in catalog.hooks("data_sets"):
                return load_data_sets(self.data_sets)
            raise InputError("data_sets: needs the extension mixtures, which is not there")
        if self.texts is None:
            raise InputError("texts: are missing; give examples, or data_sets")
        examples = {"train": make_examples(self.texts, self.labels, "train")}
        if self.dev is not None:
            texts, labels = self.dev if isinstance(self.dev, tuple) else (self.dev, None)
            examples["dev"] = make_examples(texts, labels, "dev")
        return examples, {}


def train_on_texts(
    training: TextTraining,
    folder: str | os.PathLike,
    sets: TextSets,
    model: str | os.PathLike | None,
    flags: Mapping[str, Any],
    handling: Handling,
) -> dict[str, float] | None:
    """Trains a model of texts in a folder.

    Args:
        training: the function that is called.
        folder: the folder.
        sets: the texts.
        model: the folder or the name of the model to begin with.
        flags: further flags of the command by name.
        handling: what is done with a folder that holds another training.

    Returns:
        The metrics of the dev sets; None without one.

    Raises:
        InputError: an argument, the data or the folder cannot be used.
    """
    fields = list_arguments(training.command, training.excluded_flags)
    with naming_arguments(fields, training.replacements):
        examples, set_flags = sets.load()
        values = check_flags(flags, fields, training.function, training.command)
        with progress.shown_in_python(bool(handling.verbose)):
            options = catalog.options_class(training.command)(
                output_dir=os.fspath(folder),
                model=model and os.fspath(model),
                do_train=True,
                do_eval="dev" in examples,
                **values,
                **set_flags,
            )
        digest = earlier_training.rows_digest(_list_rows(examples["train"]))
        train_in_folder(options, training.family, examples, digest, handling)
    if "dev" not in examples:
        return None
    return reading.read_metrics(os.path.join(options.output_dir, "eval_results.txt"))


def _list_rows(examples: list[Example] | Mapping[str, list[Example]]) -> Iterable[tuple]:
    """Returns the texts and labels of one set, or of several."""
    if isinstance(examples, Mapping):
        examples = list(itertools.chain(*examples.values()))
    return (example[1:] for example in examples)
