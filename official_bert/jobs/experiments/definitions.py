"""Reads the declarations of experiments, scales and tasks, and refuses fields that are unknown or of a wrong type.

In: TOML files. Out: dataclasses whose fields are those of the files; the comments at the top of `scales.toml` and
`tasks.toml`, and docs/experiments.md, say what they mean.
"""

import dataclasses
import difflib
import math
import os
import tomllib
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from official_bert.io import files
from official_bert.io.errors import InputError

SCALES_FILE, TASKS_FILE = "scales.toml", "tasks.toml"
SUFFIX = ".toml"
PAPER = "paper"  # the name of the scale of the paper
FlagValue = typing.NewType("FlagValue", object)  # str, int, float, bool, or a list of them, as TOML has them
Flags = dict[str, FlagValue]
# What can be measured on held-out text: the keys of run_pretraining.py's eval_results.txt, and what is made of them.
MEASURES = (
    "perplexity",
    "loss",
    "masked_lm_accuracy",
    "masked_lm_loss",
    "next_sentence_accuracy",
    "next_sentence_loss",
    "next_token_accuracy",
    "next_token_loss",
)
_KINDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", dict: "a table"}
_KINDS[FlagValue] = "a text, a finite number, true, false, or a list of them"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A phase of a pre-training. All other keys of its table are flags of run_pretraining.py."""

    flags: Flags
    records: Flags


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    name: str
    summary: str
    seeds: int
    pretraining_seeds: int
    tasks: list[str]
    vocabulary: Flags
    pretraining: list[dict[str, object]]
    sizes: dict[str, str] = dataclasses.field(default_factory=dict)
    ensemble: int | None = None
    only_present: bool = False
    stand_ins: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    config: Flags = dataclasses.field(default_factory=dict)
    records: Flags = dataclasses.field(default_factory=dict)
    held_out: Flags = dataclasses.field(default_factory=dict)
    fine_tuning: Flags = dataclasses.field(default_factory=dict)
    recipes: dict[str, Flags] = dataclasses.field(default_factory=dict)
    from_text: Flags = dataclasses.field(default_factory=dict)
    recipes_from_text: dict[str, Flags] = dataclasses.field(default_factory=dict)
    with_flag: dict[str, Flags] = dataclasses.field(default_factory=dict)

    @property
    def is_papers(self) -> bool:
        """Whether models and data are the paper's, so that its numbers compare with ours."""
        return self.name == PAPER

    @property
    def phases(self) -> list[Phase]:
        """The phases of a pre-training, in order."""
        return [
            Phase(
                flags={name: value for name, value in table.items() if name != "records"},
                records=table.get("records", {}),
            )
            for table in self.pretraining
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preparation:
    script: str
    data: dict[str, str]
    output: str
    flag: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    name: str
    script: str
    metric: str
    examples: list[int]
    data: dict[str, str] = dataclasses.field(default_factory=dict)
    test_data: dict[str, str] = dataclasses.field(default_factory=dict)
    prepare: dict | None = None
    flags: Flags = dataclasses.field(default_factory=dict)
    evaluation: str = "do_eval"
    percent: bool = False
    sequences: int = 1

    @property
    def preparation(self) -> Preparation | None:
        """What makes the training file; None for a task that needs nothing made."""
        return Preparation(**self.prepare) if self.prepare else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """A column of the table: a task, or a measure of the pre-trained model on held-out text.

    Attributes:
        label: the heading; without one, the name of the task.
        task: a task of tasks.toml.
        metric: the key of the results, if it is not the task's own; a task that stands in keeps its own.
        set: "dev" or "test".
        at: the share of the updates of the pre-training, all phases together, after which the model is fine-tuned.
        fine_tuning: flags of the fine-tunings of this column.
        measure: one of MEASURES.
    """

    label: str = ""
    task: str | None = None
    metric: str | None = None
    set: str = "dev"
    at: float | None = None
    fine_tuning: Flags = dataclasses.field(default_factory=dict)
    measure: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the table: a model that is given, or one that is pre-trained, and how it is fine-tuned.

    Attributes:
        label: its name.
        encoder: the name of a given model; such a row is fine-tuned only.
        size: layers/hidden size/heads of the paper's model; such a row is pre-trained.
        config: fields of bert_config.json in which its model differs.
        records: flags of create_pretraining_data.py in which its records differ.
        pretraining: flags of run_pretraining.py.
        fine_tuning: flags of all its fine-tunings.
        first_task: a task that the model is fine-tuned on before that of the column.
        ensemble: the number of fine-tunings whose predictions are averaged, at least 2.
        paper: the paper's numbers by the labels of columns.
    """

    label: str
    encoder: str | None = None
    size: str | None = None
    config: Flags = dataclasses.field(default_factory=dict)
    records: Flags = dataclasses.field(default_factory=dict)
    pretraining: Flags = dataclasses.field(default_factory=dict)
    fine_tuning: Flags = dataclasses.field(default_factory=dict)
    first_task: str | None = None
    ensemble: int | None = None
    paper: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Experiment:
    name: str
    path: str
    title: str
    source: str
    columns: list[Column]
    rows: list[Row]
    is_ablation: bool = False


@dataclasses.dataclass(frozen=True)
class Catalogue:
    """The scales, the tasks, and the flags of fine-tunings that have a certain flag."""

    folder: str
    scales: Mapping[str, Scale]
    tasks: Mapping[str, Task]
    with_flag: Mapping[str, Flags]

    def scale(self, name: str) -> Scale:
        """Returns a scale by its name.

        Raises:
            InputError: there is none of that name.
        """
        if name not in self.scales:
            raise InputError(
                f"--scale={name}: {os.path.join(self.folder, SCALES_FILE)} has no such scale; choose one of "
                f"{', '.join(self.scales)}"
            )
        return self.scales[name]


def read_catalogue(folder: str) -> Catalogue:
    """Reads scales.toml and tasks.toml of a folder.

    Raises:
        InputError: a file is missing or is no TOML, or a field is unknown, missing or of a wrong type.
    """
    path = os.path.join(folder, SCALES_FILE)
    scales = {name: _made(Scale, table, path, name, {"name": name}) for name, table in _read(path).items()}
    path = os.path.join(folder, TASKS_FILE)
    content = _read(path)
    _refuse_unknown(content, ("tasks", "with_flag"), path, "")
    for name in content:
        if wanted := _mismatch(content[name], dict[str, dict] if name == "tasks" else dict[str, Flags]):
            raise InputError(f"{path}: {name}: must be {wanted}")
    tasks = {
        name: _made(Task, table, path, f"tasks.{name}", {"name": name})
        for name, table in content.get("tasks", {}).items()
    }
    for task in tasks.values():
        if task.prepare:
            _made(Preparation, task.prepare, path, f"tasks.{task.name}.prepare")
        if len(task.examples) != 2 or min(task.examples) < 0:
            raise InputError(
                f"{path}: tasks.{task.name}.examples: must be two numbers from 0, training and evaluation"
            )
        if task.sequences < 1:
            raise InputError(f"{path}: tasks.{task.name}.sequences: must be at least 1, got {task.sequences}")
    catalogue = Catalogue(folder, scales, tasks, content.get("with_flag", {}))
    for scale in scales.values():
        _check_scale(catalogue, scale)
    return catalogue


def names_of(folder: str) -> list[str]:
    """Returns the names of the experiments in a folder."""
    found = files.matching(os.path.join(folder, f"*{SUFFIX}"))
    return [
        os.path.basename(path).removesuffix(SUFFIX)
        for path in found
        if os.path.basename(path) not in (SCALES_FILE, TASKS_FILE)
    ]


def read_experiment(name: str, catalogue: Catalogue) -> Experiment:
    """Reads an experiment by its name, or by the path of a TOML file.

    Raises:
        InputError: there is no such experiment, or its file cannot be used.
    """
    is_path = name.endswith(SUFFIX)
    path = name if is_path else os.path.join(catalogue.folder, f"{name}{SUFFIX}")
    if not is_path and name not in names_of(catalogue.folder):
        raise InputError(
            f"{name}: there is no such experiment in {catalogue.folder}; choose one of "
            f"{', '.join(names_of(catalogue.folder))}, or name a {SUFFIX} file of your own"
        )
    content = _read(path)
    columns, rows = content.get("columns", []), content.get("rows", [])
    for field, tables in (("columns", columns), ("rows", rows)):
        if not isinstance(tables, list) or not tables or not all(isinstance(each, dict) for each in tables):
            raise InputError(f"{path}: {field}: must be a list of tables, at least one; add it")
    made = {
        "columns": [_column(table, path, number) for number, table in enumerate(columns, 1)],
        "rows": [_made(Row, table, path, f"rows, number {number}") for number, table in enumerate(rows, 1)],
    }
    stem = os.path.basename(path).removesuffix(SUFFIX)
    experiment = _made(Experiment, content | made, path, "", {"name": stem, "path": path})
    _check_experiment(experiment, catalogue)
    return experiment


def _column(table: dict, path: str, number: int) -> Column:
    column = _made(Column, table, path, f"columns, number {number}")
    if (column.task is None) == (column.measure is None):
        raise InputError(
            f"{path}: columns, number {number}: has neither or both of task and measure; give one"
        )
    if column.set not in ("dev", "test"):
        raise InputError(f"{path}: columns, number {number}: set is {column.set!r}; write dev or test")
    if column.measure is not None and column.measure not in MEASURES:
        raise InputError(
            f"{path}: columns, number {number}: there is no measure {column.measure!r}"
            f"{_nearest(column.measure, MEASURES)}"
        )
    if column.at is not None and not 0.0 < column.at <= 1.0:
        raise InputError(
            f"{path}: columns, number {number}: at is {column.at:g}; write a share above 0 and at most 1"
        )
    return dataclasses.replace(column, label=column.label or column.task or column.measure)


def _check_experiment(experiment: Experiment, catalogue: Catalogue):
    labels = [column.label for column in experiment.columns]
    for what, names in (("columns", labels), ("rows", [row.label for row in experiment.rows])):
        if len(set(names)) < len(names):
            raise InputError(f"{experiment.path}: {what}: two have the same label; give each its own")
    for column in experiment.columns:
        if column.task:
            _check_task(column.task, experiment.path, f"columns, {column.label!r}, task", catalogue.tasks)
    for row in experiment.rows:
        where = f"rows, {row.label!r}"
        if "" in (row.label, row.encoder, row.size, row.first_task):
            raise InputError(
                f"{experiment.path}: {where}: has an empty text; write a name, or leave the field out"
            )
        if row.ensemble is not None and row.ensemble < 2:
            raise InputError(f"{experiment.path}: {where}: ensemble must be at least 2, got {row.ensemble}")
        if (row.encoder is None) == (row.size is None):
            raise InputError(f"{experiment.path}: {where}: has neither or both of encoder and size; give one")
        if row.encoder and (row.config or row.records or row.pretraining):
            raise InputError(
                f"{experiment.path}: {where}: encoder names a given model, so that config, records and pretraining "
                "mean nothing; leave them out, or give size instead of encoder"
            )
        needing = [column.label for column in experiment.columns if column.measure or column.at is not None]
        if row.encoder and needing:
            raise InputError(
                f"{experiment.path}: {where}: encoder names a given model, and column {needing[0]!r} needs one that is "
                "pre-trained; give size instead of encoder"
            )
        of_test = [column.label for column in experiment.columns if column.set == "test"]
        if row.ensemble and of_test:
            raise InputError(
                f"{experiment.path}: {where}: an ensemble is evaluated on the development set, and column "
                f"{of_test[0]!r} is of the test set; leave one of them out"
            )
        if row.first_task:
            _check_task(row.first_task, experiment.path, f"{where}, first_task", catalogue.tasks)
        for label in row.paper:
            if label not in labels:
                raise InputError(
                    f"{experiment.path}: {where}, paper: there is no column {label!r}; it is one of {labels}"
                )


def _check_scale(catalogue: Catalogue, scale: Scale):
    path = os.path.join(catalogue.folder, SCALES_FILE)
    stand_ins = [name for names in scale.stand_ins.values() for name in names]
    for field, names in (
        ("tasks", scale.tasks),
        ("stand_ins", [*scale.stand_ins, *stand_ins]),
        ("recipes", scale.recipes),
        ("recipes_from_text", scale.recipes_from_text),
    ):
        for name in names:
            _check_task(name, path, f"{scale.name}.{field}", catalogue.tasks)
    for field, least in (("seeds", 1), ("pretraining_seeds", 1), ("ensemble", 2)):
        value = getattr(scale, field)
        if value is not None and value < least:
            raise InputError(f"{path}: {scale.name}.{field}: must be at least {least}, got {value}")
    if not scale.pretraining:
        raise InputError(f"{path}: {scale.name}.pretraining: has no phase; add one")
    for number, phase in enumerate(scale.phases, 1):
        for what, flags in (("", phase.flags), ("records: ", phase.records)):
            if wanted := _mismatch(flags, Flags):
                raise InputError(f"{path}: {scale.name}.pretraining, number {number}: {what}must be {wanted}")
    if _mismatch(scale.vocabulary.get("vocab_size"), int):
        raise InputError(f"{path}: {scale.name}.vocabulary: has no vocab_size, a whole number; add it")
    if _mismatch(scale.vocabulary.get("vocab_file", ""), str):
        raise InputError(
            f"{path}: {scale.name}.vocabulary: vocab_file must be a text, a path below --data_dir"
        )


def _check_task(name: str, path: str, where: str, tasks: Mapping[str, Task]):
    if name not in tasks:
        raise InputError(f"{path}: {where}: {name!r} is no task of {TASKS_FILE}{_nearest(name, tasks)}")


Made = TypeVar("Made")


def _made(
    kind: type[Made], table: Any, path: str, where: str, known: Mapping[str, Any] = types.MappingProxyType({})
) -> Made:
    """Returns an instance of a dataclass whose fields are the keys of a table.

    Args:
        kind: the dataclass.
        table: the table of TOML.
        path: of the file, for messages.
        where: the table in the file, for messages.
        known: fields that the table does not have.
    """
    place = f"{path}: {where}: " if where else f"{path}: "
    if not isinstance(table, dict):
        raise InputError(f"{place}must be a table")
    fields = {field.name: field for field in dataclasses.fields(kind) if field.name not in known}
    _refuse_unknown(table, fields, path, where)
    for name, field in fields.items():
        is_required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if name not in table:
            if is_required:
                raise InputError(f"{place}{name} is missing; add it")
        elif (wanted := _mismatch(table[name], field.type)) is not None:
            raise InputError(f"{place}{name}: must be {wanted}, got {table[name]!r}")
    return kind(**table, **known)


def _refuse_unknown(table: Mapping, known: typing.Iterable[str], path: str, where: str):
    for name in table:
        if name not in known:
            place = f"{path}: {where}: " if where else f"{path}: "
            raise InputError(f"{place}unknown field {name!r}{_nearest(name, known)}")


def _mismatch(value: Any, kind: Any) -> str | None:
    """Returns what a value must be, in words; None if it is that."""
    if isinstance(kind, types.UnionType):
        kind = kind.__args__[0]
    origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin is FlagValue:
        return None if _is_flag_value(value) else _KINDS[FlagValue]
    if origin is list:
        inner = arguments[0] if arguments else object
        is_good = isinstance(value, list) and all(_mismatch(each, inner) is None for each in value)
        return None if is_good else f"a list, each {_KINDS.get(inner, 'a table')}"
    if origin is dict:
        inner = arguments[1] if arguments else object
        if not isinstance(value, dict):
            return _KINDS[dict]
        wrong = [_mismatch(each, inner) for each in value.values()]
        return next((f"a table, each value {wanted}" for wanted in wrong if wanted), None)
    if origin in (object, Any) or dataclasses.is_dataclass(origin):
        return None
    is_number = isinstance(value, int) and not isinstance(value, bool)
    is_good = is_number if origin is int else isinstance(value, origin) or (origin is float and is_number)
    return None if is_good else _KINDS[origin]


def _is_flag_value(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_flag_value(each) and not isinstance(each, list) for each in value)
    return isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


def _nearest(name: str, known: typing.Iterable[str]) -> str:
    nearest = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else f"; it is one of {', '.join(known)}"


def _read(path: str) -> dict:
    with files.open_file(path, "rb") as file:
        try:
            return tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: is no TOML ({error}); correct it") from None
