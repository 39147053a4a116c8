"""Reads the declarations of experiments, scales and tasks, and rejects unknown fields and fields of
a wrong type.

Input: TOML files. Output: dataclasses with the fields of the files. The comments at the top of
`scales.toml` and `tasks.toml`, and docs/experiments.md, explain the fields.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, NamedTuple

from official_bert.io import files, reading
from official_bert.io.errors import InputError
from official_bert.io.toml_tables import Value, build_dataclass, find_type_fault, name_remedy

SCALES_FILE = "scales.toml"
TASKS_FILE = "tasks.toml"
SUFFIX = ".toml"
_BASE_FIELD = "based_on"
Flags = dict[str, Value]
MINIMAL_PAIRS = "minimal_pairs"
# The measures of a pre-trained model: the keys of run_pretraining.py's eval_results.txt on held-out
# text, the perplexity, which is computed from a loss, and the mean accuracy on minimal pairs.
MEASURES = [
    "perplexity",
    "loss",
    "masked_lm_accuracy",
    "masked_lm_loss",
    "next_sentence_accuracy",
    "next_sentence_loss",
    "next_token_accuracy",
    "next_token_loss",
    MINIMAL_PAIRS,
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """The sizes of models and data of all experiments, a table of scales.toml."""

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
    with_flag: dict[str, Flags] = field(default_factory=dict)

    @property
    def phases(self) -> list[tuple[Flags, Flags]]:
        """The phases of a pre-training in order: the flags of the training, and of its records."""
        phases = []
        for table in self.pretraining:
            training_flags = {name: value for name, value in table.items() if name != "records"}
            phases.append((training_flags, table.get("records", {})))
        return phases


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A fine-tuning script with its data and metric, a table of tasks.toml."""

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
    fine_tuning: Flags = field(default_factory=dict)
    measure: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A model of the user (`encoder`) or one to pre-train (`size`), and its fine-tuning."""

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
    """A table or figure of the paper: its columns and rows."""

    name: str
    path: str
    title: str
    source: str
    columns: list[Column]
    rows: list[Row]
    is_ablation: bool = False


class Catalogue(NamedTuple):
    """The scales, the tasks, and the further flags of fine-tunings that have a certain flag."""

    folder: str
    scales: Mapping[str, Scale]
    tasks: Mapping[str, Task]
    with_flag: Mapping[str, Flags]


def read_catalogue(folder: str) -> Catalogue:
    """Read scales.toml and tasks.toml of a folder.

    Args:
        folder: the folder of both files and of the experiments.

    Returns:
        The scales and tasks by name.

    Raises:
        InputError: a file is not TOML, or a table has an unknown, missing or wrong field.
    """
    tasks_path = os.path.join(folder, TASKS_FILE)
    content = reading.read_toml(tasks_path)
    tasks: dict[str, Task] = {}
    for name, table in content["tasks"].items():
        tasks[name] = build_dataclass(
            Task,
            table,
            f"{tasks_path}: tasks.{name}: ",
            name=name,
        )
    scales_path = os.path.join(folder, SCALES_FILE)
    scales: dict[str, Scale] = {}
    scale_tables = reading.read_toml(scales_path)
    for name, table in scale_tables.items():
        place = f"{scales_path}: {name}: "
        scales[name] = build_dataclass(
            Scale,
            _add_base_fields(table, scale_tables, place),
            place,
            name=name,
        )
    for scale in scales.values():
        _raise_first(scales_path, scale.name, _find_scale_faults(scale, tasks))
    return Catalogue(folder, scales, tasks, content["with_flag"])


def _add_base_fields(
    table: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]], place: str
) -> dict[str, Any]:
    """Returns the table of a scale with the fields that it lacks of the scale it is based on."""
    base = table.get(_BASE_FIELD)
    if base is None:
        return dict(table)
    if base not in tables:
        remedy = name_remedy(str(base), tables)
        raise InputError(f"{place}{_BASE_FIELD}: there is no scale {base!r}; {remedy}")
    if _BASE_FIELD in tables[base]:
        raise InputError(f"{place}{_BASE_FIELD}: {base} is based on another scale; name that one")
    added_fields = {name: value for name, value in table.items() if name != _BASE_FIELD}
    return {**tables[base], **added_fields}


def find_scale(name: str, catalogue: Catalogue) -> Scale:
    """Return the scale of a name.

    Args:
        name: the value of --scale.
        catalogue: the scales and tasks.

    Returns:
        The scale.

    Raises:
        InputError: there is no such scale.
    """
    if name not in catalogue.scales:
        remedy = name_remedy(name, catalogue.scales)
        raise InputError(f"--scale={name}: there is no such scale; {remedy}")
    return catalogue.scales[name]


def list_experiments(folder: str) -> list[str]:
    """Return the names of the experiments of a folder.

    Args:
        folder: a folder of TOML files.

    Returns:
        The names of the files without their suffix.
    """
    paths = files.matching(f"*{SUFFIX}", folder)
    file_names = [os.path.basename(path) for path in paths]
    return [
        name.removesuffix(SUFFIX) for name in file_names if name not in (SCALES_FILE, TASKS_FILE)
    ]


def read_experiment(name: str, catalogue: Catalogue) -> Experiment:
    """Read an experiment.

    Args:
        name: the name of an experiment in the catalogue's folder, or the path of a TOML file.
        catalogue: the scales and tasks, to which the experiment refers.

    Returns:
        The experiment.

    Raises:
        InputError: there is no such experiment, or a field of it is unknown, missing or wrong.
    """
    path = name
    if not name.endswith(SUFFIX):
        path = os.path.join(catalogue.folder, f"{name}{SUFFIX}")
    experiment_names = list_experiments(catalogue.folder)
    if name != path and name not in experiment_names:
        raise InputError(
            f"{name or 'no name'}: there is no such experiment; name one before the flags, as in "
            f"official-bert run_experiment table5 --scale=desk, one of "
            f"{', '.join(experiment_names)} or a {SUFFIX} file of your own"
        )
    content = reading.read_toml(path)
    columns = _build_list(Column, content, "columns", path)
    content["columns"] = [_add_label(column) for column in columns]
    content["rows"] = _build_list(Row, content, "rows", path)
    stem = os.path.basename(path).removesuffix(SUFFIX)
    experiment = build_dataclass(
        Experiment,
        content,
        f"{path}: ",
        name=stem,
        path=path,
    )
    _check_experiment(experiment, catalogue.tasks)
    return experiment


def _build_list(kind: type, content: Mapping[str, Any], name: str, path: str) -> list:
    """Returns the dataclasses of a file's list of tables."""
    tables = content.get(name)
    if find_type_fault(tables, list[dict]) or not tables:
        raise InputError(f"{path}: {name}: must be a list of tables, at least one; add it")
    return [
        build_dataclass(kind, table, f"{path}: {name}, number {number}: ")
        for number, table in enumerate(tables, 1)
    ]


def _add_label(column: Column) -> Column:
    label = column.label or column.task or column.measure or ""
    return dataclasses.replace(column, label=label)


def _check_experiment(experiment: Experiment, tasks: Mapping[str, Task]):
    path = experiment.path
    column_labels = [column.label for column in experiment.columns]
    row_labels = [row.label for row in experiment.rows]
    for column in experiment.columns:
        _raise_first(path, f"columns, {column.label!r}", _find_column_faults(column, tasks))
    for row in experiment.rows:
        faults = _find_row_faults(row, experiment.columns, column_labels, tasks)
        _raise_first(path, f"rows, {row.label!r}", faults)
    for labels in (column_labels, row_labels):
        if len(set(labels)) < len(labels):
            raise InputError(f"{path}: two of {labels} have the same label; give each its own")


def _raise_first(path: str, place: str, faults: Iterator[str]):
    for sentence in faults:
        raise InputError(f"{path}: {place}: {sentence}")


def _find_column_faults(column: Column, tasks: Mapping[str, Task]) -> Iterator[str]:
    if (column.task is None) == (column.measure is None):
        yield "has neither or both of task and measure; give one"
    if column.set not in ("dev", "test"):
        yield f"set is {column.set!r}; write dev or test"
    if column.measure is not None and column.measure not in MEASURES:
        yield f"there is no measure {column.measure!r}; {name_remedy(column.measure, MEASURES)}"
    if column.fine_tuning and column.task is None:
        yield "fine_tuning changes no measure; give a task, or leave it out"
    if column.at is not None and not 0.0 < column.at <= 1.0:
        yield f"at is {column.at:g}; write a share above 0 and at most 1"
    task_names = [] if column.task is None else [column.task]
    yield from _find_unknown_tasks(task_names, "task", tasks)


def _find_row_faults(
    row: Row,
    columns: list[Column],
    labels: list[str],
    tasks: Mapping[str, Task],
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
    first_tasks = [] if row.first_task is None else [row.first_task]
    yield from _find_unknown_tasks(first_tasks, "first_task", tasks)
    for label in row.paper.keys() - labels:
        yield f"paper: there is no column {label!r}; {name_remedy(label, labels)}"


def _find_scale_faults(scale: Scale, tasks: Mapping[str, Task]) -> Iterator[str]:
    task_names = (
        *scale.tasks,
        *scale.stand_ins,
        *scale.stand_ins.values(),
        *scale.recipes,
        *scale.recipes_from_text,
    )
    yield from _find_unknown_tasks(task_names, "tasks, stand_ins or recipes", tasks)
    lowest_count = min(
        scale.seeds,
        scale.pretraining_seeds,
        len(scale.pretraining),
    )
    if lowest_count < 1 or "vocab_size" not in scale.vocabulary:
        yield "must have seeds, pretraining_seeds and phases, at least 1 each, and a vocab_size"
    if scale.pretraining and "stop_at_step" in scale.pretraining[-1]:
        yield (
            "pretraining: its last phase has stop_at_step, so that no phase ends the schedule; "
            "remove it there"
        )


def _find_unknown_tasks(
    names: Iterable[str],
    place: str,
    tasks: Mapping[str, Task],
) -> Iterator[str]:
    for name in names:
        if name not in tasks:
            yield f"{place}: {name!r} is no task of {TASKS_FILE}; {name_remedy(name, tasks)}"
