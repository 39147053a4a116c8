"""The results of steps: what a script has written becomes result.json, and result.json a number of the table.

In: the output folder of a step. Out: result.json beside it, which says that the step is finished, and the values of the
cells of a plan.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.reading import is_of_kind
from official_bert.jobs.experiments.plan import Cell, Plan
from official_bert.jobs.experiments.steps import Layout, Step

RESULT_FILE = "result.json"
PERPLEXITY = "perplexity"
_LOSSES = ("masked_lm_loss", "next_token_loss")  # of which the perplexity is the exponential
_EVALUATION, _SUFFIX = "eval_results", ".txt"
_SEARCH_RESULTS, _BEST_MARK = "search_results.tsv", "*"
# What is read of result.json.
_FIELDS = {"secs": float, "is_resumed": bool, "is_stripped": bool, "metrics": dict}
# What a fine-tuning leaves that its results do not need.
_LARGE = ("model.ckpt-*", "input.ckpt-*", "checkpoint", "*.tf_record", "*logits.npz")


@dataclasses.dataclass(frozen=True)
class Value:
    """The number of a cell.

    Attributes:
        cell: the cell.
        value: in percent where the column is; nan of a model that has learnt nothing for some metrics, and infinite for
            the perplexity of a very large loss.
        secs: the seconds of the process that gave it.
    """

    cell: Cell
    value: float
    secs: float


@dataclasses.dataclass(frozen=True)
class Time:
    """What the steps of a kind took.

    Attributes:
        kind: of the steps.
        count: the number of all steps, finished or not.
        num_finished: the number of those that are finished.
        num_resumed: the number of those that had been interrupted, of which `secs` has only the last process.
        secs: the seconds of the finished ones, added up.
    """

    kind: str
    count: int
    num_finished: int
    num_resumed: int
    secs: float


def read_result(layout: Layout, step: Step) -> dict | None:
    """Returns the content of a step's result.json; None for a step that is not finished.

    Raises:
        InputError: the file is damaged.
    """
    folder = layout.folder(step)
    path = os.path.join(folder, RESULT_FILE)
    if not files.exists(path):
        return None
    with files.open_file(path, "rb") as file:
        content = file.read()
    try:
        result = reading.parse_json(content)
        _check(result)
    except InputError as error:
        raise InputError(
            f"{path}: {error}; delete the folder {folder}, and the same command runs the step again"
        ) from None
    return result


def _check(result: Any):
    """Refuses a value that `write_result` does not write; the caller names the file and the remedy."""
    if not isinstance(result, dict):
        raise InputError("is no object")
    for name, kind in _FIELDS.items():
        if not is_of_kind(result.get(name), kind):
            raise InputError(f'"{name}" is missing or of a wrong type')
    for name, value in result["metrics"].items():
        if value is not None and not is_of_kind(value, float):
            raise InputError(f'the metric "{name}" is no number')


def write_result(layout: Layout, step: Step, secs: float, is_resumed: bool):
    """Marks a step as finished, with the metrics that its script has written.

    Args:
        layout: the places.
        step: the step.
        secs: of its last process.
        is_resumed: whether an earlier process had begun it, so that `secs` are not all.
    """
    result = {
        "kind": step.kind,
        "label": step.label,
        "command": layout.shell_line(step),
        "seed": step.seed,
        "secs": round(secs, 1),
        "is_resumed": is_resumed,
        "is_stripped": False,
        "metrics": read_metrics(layout.output(step)),
    }
    _write(layout, step, result)


def _write(layout: Layout, step: Step, result: dict):
    with writing.replacing(os.path.join(layout.folder(step), RESULT_FILE)) as file:
        file.write(json.dumps(result, indent=1) + "\n")


def forget_result(layout: Layout, step: Step):
    """Makes a finished step an unfinished one that begins anew."""
    files.remove(layout.folder(step))


def strip(layout: Layout, step: Step):
    """Deletes the checkpoints and other large files of a finished fine-tuning, and notes it."""
    result = read_result(layout, step)
    if result is None or result["is_stripped"]:
        return
    _write(layout, step, result | {"is_stripped": True})  # first, so that no half-deleted model seems whole
    for folder, _, _ in list(os.walk(layout.output(step))):
        for pattern in _LARGE:
            for path in files.matching(os.path.join(folder, pattern)):
                files.remove(path)


def read_metrics(output_dir: str) -> dict[str, float | None]:
    """Returns the metrics of all eval_results files of a folder, or of the best run of a search in it.

    The names of a second set get the suffix of its file, as `eval_accuracy_mm`. A metric that is no number is None.
    """
    metrics: dict[str, float | None] = {}
    folder = _best_of_search(output_dir) or output_dir
    for path in files.matching(os.path.join(folder, f"{_EVALUATION}*{_SUFFIX}")):
        suffix = os.path.basename(path).removeprefix(_EVALUATION).removesuffix(_SUFFIX)
        for line in reading.read_lines(path):
            name, equals, text = line.partition(" = ")
            if equals:
                number = float(text)
                metrics[f"{name}{suffix}"] = number if math.isfinite(number) else None
    return metrics


def _best_of_search(output_dir: str) -> str | None:
    path = os.path.join(output_dir, _SEARCH_RESULTS)
    if not files.exists(path):
        return None
    rows = csv.DictReader(reading.read_lines(path), delimiter="\t")
    return next((os.path.join(output_dir, row["run"]) for row in rows if row["best"] == _BEST_MARK), None)


def value_of(metrics: Mapping[str, float | None], name: str) -> float:
    """Returns a metric; the perplexity is made of the loss of masked words or of next tokens, and may be infinite.

    Raises:
        KeyError: there is no such metric.
    """
    if name == PERPLEXITY:
        loss = metrics[next((key for key in _LOSSES if key in metrics), name)]
        return math.nan if loss is None else _exponential(loss)
    value = metrics[name]
    return math.nan if value is None else value


def _exponential(number: float) -> float:
    try:
        return math.exp(number)
    except OverflowError:
        return math.inf


def values_of(plan: Plan, layout: Layout) -> tuple[list[Value], list[str]]:
    """Returns the values of all cells whose steps are finished, and a sentence for each column without its metric.

    A cell whose results lack the metric has no value.

    Raises:
        InputError: a result.json is damaged.
    """
    found: list[Value] = []
    faults: dict[str, str] = {}
    for cell in plan.cells:
        result = read_result(layout, cell.step)
        if result is None:
            continue
        try:
            value = value_of(result["metrics"], cell.column.metric)
        except KeyError:
            sentence = (
                f"column {cell.column.label!r} has empty cells: the results of {layout.folder(cell.step)} have no "
                f"{cell.column.metric!r}, but {', '.join(result['metrics']) or 'nothing'}; correct the metric of the "
                "column or of the task"
            )
            faults.setdefault(cell.column.label, sentence)
            continue
        found.append(Value(cell, cell.column.factor * value, result["secs"]))
    return found, list(faults.values())


def times_of(plan: Plan, layout: Layout) -> list[Time]:
    """Returns what the steps took, by their kinds in the order of the plan."""
    found: dict[str, list[dict | None]] = {}
    for step in plan.steps:
        found.setdefault(step.kind, []).append(read_result(layout, step))
    times = []
    for kind, results in found.items():
        finished = [result for result in results if result is not None]
        num_resumed = sum(result["is_resumed"] for result in finished)
        secs = sum(result["secs"] for result in finished)
        times.append(Time(kind, len(results), len(finished), num_resumed, secs))
    return times


def lines_of(values: Iterable[Value], plan: Plan, layout: Layout) -> list[str]:
    """Returns a line of JSON for each value; one that is no finite number is null."""
    lines = []
    for value in values:
        cell = value.cell
        line = {
            "experiment": plan.experiment.name,
            "scale": plan.scale.name,
            "arm": cell.row,
            "column": cell.column.heading,
            "task": cell.column.task.name if cell.column.task else None,
            "seed": cell.seed,
            "metric": cell.column.metric,
            "value": round(value.value, 4) if math.isfinite(value.value) else None,
            "secs": value.secs,
            "folder": os.path.relpath(layout.folder(cell.step), os.path.dirname(layout.steps_dir)),
        }
        lines.append(json.dumps(line))
    return lines
