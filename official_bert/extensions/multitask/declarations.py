"""The tasks of a joint training, as the tables of --data_sets declare them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from official_bert import catalog
from official_bert.data import set_tables
from official_bert.extensions.multitask.folders import task_folder
from official_bert.io.errors import InputError
from official_bert.model_dir import ModelFolder, has_checkpoints
from official_bert.options.fields import flag_without_effect, without_flag
from official_bert.tasks import registry
from official_bert.tasks.base import DataFiles, Task

TASK_NAME = "task_name"
FILE_FLAGS = ("train_file", "dev_file", "test_file")
_PATH_FLAGS = ("data_dir", *FILE_FLAGS)
# The flags of the fine-tuning scripts that a table may set; a script has some of them.
_SET_FLAGS = (
    TASK_NAME,
    *_PATH_FLAGS,
    "text_a_column",
    "text_b_column",
    "label_column",
    "anchor_column",
    "positive_column",
    "negative_columns",
    "has_header",
    "label_separator",
    "quoting",
    "data_format",
    "labels",
    "label_type",
    "class_weights",
    "long_texts",
    "doc_stride",
    "abstain_below",
    "document_context",
    "loss",
    "scale",
    "symmetric",
    "triplet_margin",
    "contrastive_margin",
    "matryoshka",
    "teacher",
    "eval_task",
    "pooling",
    "projection",
    "normalize",
)
# The scripts whose tasks can share a training: their examples are sequences of tokens.
_SCRIPTS = ("run_classifier", "run_ner", "run_embeddings")


class Declaration(NamedTuple):
    """A task of a joint training.

    Attributes:
        values: the values of its table by name.
        entry: the entry of the task in the registry.
        task: the task.
    """

    values: Mapping[str, Any]
    entry: registry.Entry
    task: Task

    def data_files(self) -> DataFiles:
        """Returns the files of the task."""
        named = {name.removesuffix("_file"): self.values.get(name) for name in FILE_FLAGS}
        return DataFiles(self.values.get("data_dir"), named)

    def has_set(self, set_name: str) -> bool:
        """Returns whether the table names a set.

        Args:
            set_name: train, dev or test.
        """
        return bool(self.values.get("data_dir") or self.values.get(f"{set_name}_file"))


def read_declarations(path: str, run_values: Mapping[str, Any]) -> dict[str, Declaration]:
    """Makes the tasks of a joint training.

    Args:
        path: the TOML file.
        run_values: the flags of the run by name, without an open value.

    Returns:
        The tasks by the names of their tables.

    Raises:
        InputError: the file is damaged, or declares what cannot be trained.
    """
    folder = os.path.dirname(path)
    return {
        name: _make_declaration(name, f"{path}: [{name}]", table, folder, run_values)
        for name, table in set_tables.read_tables(path).items()
    }


def _make_declaration(
    name: str, place: str, table: Mapping[str, Any], folder: str, run_values: Mapping[str, Any]
) -> Declaration:
    entry = _find_entry(place, table)
    script = catalog.families()[entry.family].script
    options_class = catalog.options_class(script)
    fields = {field.name: field for field in dataclasses.fields(options_class)}
    set_fields = {flag: fields[flag] for flag in _SET_FLAGS if flag in fields}
    flags = dict(table)
    if TASK_NAME not in fields:
        flags.pop(TASK_NAME)
    values = set_tables.read_values(place, flags, set_fields)
    set_tables.move_paths(values, _PATH_FLAGS, folder)
    if not any(flag in values for flag in ("data_dir", "train_file")):
        raise InputError(f"{place}: has neither data_dir nor train_file; name one of them")

    output_dir = task_folder(run_values["output_dir"], name)
    shared_values = _share_values(fields, run_values)
    options = options_class(**shared_values | {"output_dir": output_dir} | values)
    if sentence := flag_without_effect(options, options):
        raise InputError(f"{place}: {sentence}")
    settings = _complete_settings(options, entry, has_checkpoints(run_values["output_dir"]))
    try:
        task = entry.make(settings)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    assert isinstance(task, Task)  # as all tasks of the scripts are
    if task.num_choices is not None or task.predicts_without_model:
        raise InputError(
            f"{place}: {entry.name} does not train a model of one sequence of tokens; leave it out"
        )
    return Declaration({TASK_NAME: entry.name, **values}, entry, task)


def _complete_settings(options: Any, entry: registry.Entry, is_trained: bool) -> dict[str, Any]:
    """Returns the settings of a task: its flags, and what its folder or else the script says.

    Args:
        options: the flags of the task's script.
        entry: the entry of the task.
        is_trained: whether the joint training has begun before.
    """
    model_folder = ModelFolder(options.output_dir)
    recorded: dict[str, Any] = {}
    record = model_folder.task() if is_trained else None
    if record and record.family == entry.family:
        recorded = record.settings
    settings = recorded | {TASK_NAME: entry.name}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value is None:
            value = recorded.get(field.name, without_flag(field))
        settings[field.name] = value
    # A training reads its labels from the training file.
    settings["checkpoint_labels"] = None if options.do_train else model_folder.labels()
    if is_trained and not options.do_train:
        settings["init_checkpoint"] = options.output_dir
    return settings


def _find_entry(place: str, table: Mapping[str, Any]) -> registry.Entry:
    """Returns the entry of the task that a table names."""
    task_name = table.get(TASK_NAME)
    if not isinstance(task_name, str):
        raise InputError(
            f"{place}: has no task_name; give a task of GLUE, text for a table of your own, or ner"
        )
    try:
        entry = registry.find(task_name)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    family = catalog.families().get(entry.family)
    if family is None or family.script not in _SCRIPTS:
        raise InputError(
            f"{place}: {task_name} cannot be trained with other tasks; give one of "
            f"{', '.join(_SCRIPTS)}"
        )
    return entry


def _share_values(
    fields: Mapping[str, dataclasses.Field], run_values: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the values of a run for the flags that a script also has, except those of data."""
    return {
        name: run_values[name] for name in fields if name in run_values and name not in _SET_FLAGS
    }
