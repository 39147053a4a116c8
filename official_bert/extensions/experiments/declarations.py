"""Reads the declarations of experiments, scales and tasks, and refuses fields that are unknown or
of a wrong type.

In: TOML files. Out: dataclasses whose fields are those of the files; the comments at the top of
`scales.toml` and `tasks.toml`, and docs/experiments.md, say what they mean.
"""

import dataclasses
import os
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, NamedTuple

from official_bert.io import files
from official_bert.io.errors import InputError, did_you_mean

SCALES_FILE, TASKS_FILE, SUFFIX = "scales.toml", "tasks.toml", ".toml"
FlagValue = str | int | float | bool | list[str | int | float | bool]
Flags = dict[str, FlagValue]
# What can be measured of a pre-trained model: on held-out text the keys of run_pretraining.py's
# eval_results.txt, and what is made of a loss; and the mean accuracy on minimal pairs.
MEASURES = ["perplexity", "loss", "masked_lm_accuracy", "masked_lm_loss", "next_sentence_accuracy"]
MEASURES += ["next_sentence_loss", "next_token_accuracy", "next_token_loss"]
MEASURES += [MINIMAL_PAIRS := "minimal_pairs"]
_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
_NAMES |= {
    dict: "a table",
    list: "a list",
    FlagValue: "a text, a number, true, false, or a list of them",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    name: str
    summary: str
    seeds: int
    pretraining_seeds: int
    tasks: list[str]
    vocabulary: Flags
    pretraining: list[dict[str, Any]]
    sizes: dict[str, str] = field(default_factory=dict)
    leaves_out: list[str] = field(default_factory=list)
    minimal_pairs: Flags = field(default_factory=dict)
    ensemble: int | None = None
    stand_ins: dict[str, str] = field(default_factory=dict)
    config: Flags = field(default_factory=dict)
    records: Flags = field(default_factory=dict)
    held_out: Flags = field(default_factory=dict)
    fine_tuning: Flags = field(default_factory=dict)
    recipes: dict[str, Flags] = field(default_factory=dict)
    from_text: Flags = field(default_factory=dict)
    recipes_from_text: dict[str, Flags] = field(default_factory=dict)

    @property
    def phases(self) -> list[tuple[Flags, Flags]]:
        """The phases of a pre-training in order, each the flags of the training and those of its
        records.
        """
        return [
            (
                {name: value for name, value in table.items() if name != "records"},
                table.get("records", {}),
            )
            for table in self.pretraining
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    name: str
    script: str
    metric: str
    data: dict[str, str] = field(default_factory=dict)
    test_data: dict[str, str] = field(default_factory=dict)
    flags: Flags = field(default_factory=dict)
    evaluation: str = "do_eval"
    percent: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """A task, or a measure of the pre-trained model."""

    label: str = ""
    task: str | None = None
    metric: str | None = None
    set: str = "dev"
    at: float | None = None
    measure: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A model that is given (`encoder`) or one that is pre-trained (`size`), and how it is
    fine-tuned.
    """

    label: str
    encoder: str | None = None
    size: str | None = None
    config: Flags = field(default_factory=dict)
    records: Flags = field(default_factory=dict)
    pretraining: Flags = field(default_factory=dict)
    fine_tuning: Flags = field(default_factory=dict)
    first_task: str | None = None
    ensemble: int | None = None
    paper: dict[str, float] = field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Experiment:
    name: str
    path: str
    title: str
    source: str
    columns: list[Column]
    rows: list[Row]
    is_ablation: bool = False


class Catalogue(NamedTuple):
    """The scales and the tasks."""

    folder: str
    scales: Mapping[str, Scale]
    tasks: Mapping[str, Task]


def read_catalogue(folder: str) -> Catalogue:
    """Reads scales.toml and tasks.toml of a folder."""
    path = os.path.join(folder, TASKS_FILE)
    tables = _read(path)["tasks"].items()
    tasks = {
        name: _build(Task, each, f"{path}: tasks.{name}: ", name=name) for name, each in tables
    }
    path = os.path.join(folder, SCALES_FILE)
    tables = _read(path).items()
    scales = {name: _build(Scale, each, f"{path}: {name}: ", name=name) for name, each in tables}
    for scale in scales.values():
        _refuse(path, scale.name, _find_scale_faults(scale, tasks))
    return Catalogue(folder, scales, tasks)


def scale_of(name: str, catalogue: Catalogue) -> Scale:
    if name not in catalogue.scales:
        raise InputError(
            f"--scale={name}: there is no such scale; {_remedy(name, catalogue.scales)}"
        )
    return catalogue.scales[name]


def names_of(folder: str) -> list[str]:
    file_names = [os.path.basename(path) for path in files.matching(f"*{SUFFIX}", folder)]
    return [
        name.removesuffix(SUFFIX) for name in file_names if name not in (SCALES_FILE, TASKS_FILE)
    ]


def read_experiment(name: str, catalogue: Catalogue) -> Experiment:
    """Reads an experiment by its name, or by the path of a TOML file."""
    path = name if name.endswith(SUFFIX) else os.path.join(catalogue.folder, f"{name}{SUFFIX}")
    if name not in (path, *(experiment_names := names_of(catalogue.folder))):
        raise InputError(
            f"{name or 'no name'}: there is no such experiment; name one before the flags, as in "
            f"official-bert run_experiment table5 --scale=desk, one of "
            f"{', '.join(experiment_names)} or a {SUFFIX} file of your own"
        )
    content = _read(path)
    for what, kind in (("columns", Column), ("rows", Row)):
        if _mismatch(content.get(what), list[dict]) or not content[what]:
            raise InputError(f"{path}: {what}: must be a list of tables, at least one; add it")
        tables = enumerate(content[what], 1)
        content[what] = [
            _build(kind, table, f"{path}: {what}, number {number}: ") for number, table in tables
        ]
    content["columns"] = [
        dataclasses.replace(column, label=column.label or column.task or column.measure or "")
        for column in content["columns"]
    ]
    stem = os.path.basename(path).removesuffix(SUFFIX)
    experiment = _build(Experiment, content, f"{path}: ", name=stem, path=path)
    labels = [column.label for column in experiment.columns]
    for column in experiment.columns:
        _refuse(path, f"columns, {column.label!r}", _find_column_faults(column, catalogue.tasks))
    for row in experiment.rows:
        _refuse(
            path,
            f"rows, {row.label!r}",
            _find_row_faults(row, experiment.columns, labels, catalogue.tasks),
        )
    for names in (labels, [row.label for row in experiment.rows]):
        if len(set(names)) < len(names):
            raise InputError(f"{path}: two of {names} have the same label; give each its own")
    return experiment


def _refuse(path: str, where: str, faults: Iterator[str]):
    for sentence in faults:
        raise InputError(f"{path}: {where}: {sentence}")


def _find_column_faults(column: Column, tasks: Mapping[str, Task]) -> Iterator[str]:
    if (column.task is None) == (column.measure is None):
        yield "has neither or both of task and measure; give one"
    if column.set not in ("dev", "test"):
        yield f"set is {column.set!r}; write dev or test"
    if column.measure is not None and column.measure not in MEASURES:
        yield f"there is no measure {column.measure!r}; {_remedy(column.measure, MEASURES)}"
    if column.at is not None and not 0.0 < column.at <= 1.0:
        yield f"at is {column.at:g}; write a share above 0 and at most 1"
    yield from _unknown_tasks([column.task] if column.task is not None else [], "task", tasks)


def _find_row_faults(
    row: Row, columns: list[Column], labels: list[str], tasks: Mapping
) -> Iterator[str]:
    if bool(row.encoder) == bool(row.size):
        yield "has neither or both of encoder and size; give one"
    if row.ensemble is not None and row.ensemble < 2:
        yield f"ensemble must be at least 2, got {row.ensemble}"
    if row.encoder and (row.config or row.records or row.pretraining):
        yield (
            "encoder names a given model, which config, records and pretraining do not change; "
            "give size instead"
        )
    for column in columns:
        if row.encoder and (column.measure or column.at is not None):
            yield (
                f"encoder names a given model, and column {column.label!r} needs one that is "
                "pre-trained; give size"
            )
        if row.ensemble and column.set == "test":
            yield (
                f"an ensemble has no test set, and column {column.label!r} is of one; leave one of "
                "them out"
            )
    yield from _unknown_tasks(
        [] if row.first_task is None else [row.first_task], "first_task", tasks
    )
    for label in row.paper.keys() - labels:
        yield f"paper: there is no column {label!r}; {_remedy(label, labels)}"


def _find_scale_faults(scale: Scale, tasks: Mapping[str, Task]) -> Iterator[str]:
    names = (
        *scale.tasks,
        *scale.stand_ins,
        *scale.stand_ins.values(),
        *scale.recipes,
        *scale.recipes_from_text,
    )
    yield from _unknown_tasks(names, "tasks, stand_ins or recipes", tasks)
    if (
        min(scale.seeds, scale.pretraining_seeds, len(scale.pretraining)) < 1
        or "vocab_size" not in scale.vocabulary
    ):
        yield "must have seeds, pretraining_seeds and phases, at least 1 each, and a vocab_size"


def _unknown_tasks(names: Iterable[str], where: str, tasks: Mapping[str, Task]) -> Iterator[str]:
    for name in names:
        if name not in tasks:
            yield f"{where}: {name!r} is no task of {TASKS_FILE}; {_remedy(name, tasks)}"


def _build(kind: type, table: Any, place: str, **other_fields: Any) -> Any:
    """Returns an instance of a dataclass whose fields are the keys of a table at a place, and
    those that are known.
    """
    if _mismatch(table, dict):
        raise InputError(f"{place}must be a table")
    fields = {each.name: each for each in dataclasses.fields(kind) if each.name not in other_fields}
    for name, value in table.items():
        if name not in fields:
            raise InputError(f"{place}unknown field {name!r}; {_remedy(name, fields)}")
        if requirement := _mismatch(value, fields[name].type):
            raise InputError(f"{place}{name}: must be {requirement}, got {value!r}")
    for name, each in fields.items():
        if name not in table and each.default is each.default_factory is dataclasses.MISSING:
            raise InputError(f"{place}{name} is missing; add it")
    return kind(**table, **other_fields)


def _mismatch(value: Any, kind: Any) -> str | None:
    """Returns what a value must be, in words; None if it is that."""
    if isinstance(kind, types.UnionType):
        requirements = [
            _mismatch(value, each) for each in kind.__args__ if each is not types.NoneType
        ]
        return None if None in requirements else _NAMES.get(kind, requirements[0])
    outer = typing.get_origin(kind) or kind
    if outer not in _NAMES:  # a dataclass, which is made already, or anything
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_good = (
        is_number
        if outer is float
        else isinstance(value, outer) and (outer is not int or is_number)
    )
    if not is_good:
        return _NAMES[outer]
    inner = (typing.get_args(kind) or (Any,))[-1]
    values = value.values() if outer is dict else value if outer is list else ()
    wrong = next(filter(None, (_mismatch(each, inner) for each in values)), None)
    return wrong and f"{_NAMES[outer]}, each value {wrong}"


def _remedy(name: str, choices: Iterable[str]) -> str:
    return did_you_mean(name, choices) or f"it is one of {', '.join(choices)}"


def _read(path: str) -> dict:
    with files.open_file(path, "rb") as file:
        try:
            return tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"{path}: is no TOML ({error}); correct it") from None
