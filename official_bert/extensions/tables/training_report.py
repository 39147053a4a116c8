"""What a folder says of its training: the methods `history` and `report` of Predictor.

In: run.jsonl, eval_results.txt and confusion_matrix.tsv of a model's folder. Out: the steps of the
training, and short tables for people.
"""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from official_bert.io import files, reading
from official_bert.io.errors import InputError
from official_bert.tasks.classification.label_report import score_rows
from official_bert.training import run_log

if TYPE_CHECKING:
    from official_bert.serving.predictor import Predictor

_STEP = "step"
# Values of a step that a table shows, and those of an evaluation.
_SHOWN_STEPS = ("loss", "learning_rate")
_MOST_STEPS = 10
_MAIN_METRICS = (
    "eval_accuracy",
    "eval_macro_f1",
    "eval_micro_f1",
    "eval_f1",
    "eval_matthews",
    "eval_spearman",
    "eval_pearson",
    "eval_loss",
)


def methods() -> Mapping[str, Any]:
    """Returns the members that this module adds to Predictor."""
    return {"history": property(read_history), "report": make_report}


def read_history(predictor: Predictor) -> list[dict[str, Any]]:
    """Returns the progress of the training: a dict for each line of the log, with `step`.

        pandas.DataFrame(classifier.history).plot(x="step", y="loss")

    An evaluation that was repeated has one dict, that of the last time.

    Args:
        predictor: the model of a folder that a training has written.

    Raises:
        InputError: the folder has no record of a training.
    """
    lines = {}
    for kind in (run_log.TRAIN, run_log.EVALUATION):
        for line in run_log.read(predictor.path, kind):
            values = {name: value for name, value in line.items() if name != "type"}
            lines[kind, line[_STEP], line.get("set")] = values
    if not lines:
        raise InputError(
            f"{predictor.path}: has no {run_log.FILE} with the steps of a training; open the "
            "folder that the training has written"
        )
    return sorted(lines.values(), key=lambda line: line[_STEP])


class Table(NamedTuple):
    """A table for people.

    Attributes:
        title: what it shows.
        names: the names of the columns.
        rows: the cells of each row.
    """

    title: str
    names: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        lines = [self.names, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        texts = []
        for line in lines:
            first, *others = line
            cells = [first.ljust(widths[0])]
            cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
            texts.append("  ".join(cells).rstrip())
        return "\n".join([f"{self.title}:", *texts])


class Report:
    """Tables of what a model has learnt; `print` and notebooks show them.

    Attributes:
        tables: the tables.
    """

    def __init__(self, tables: Sequence[Table]):
        """Makes a report.

        Args:
            tables: the tables.
        """
        self.tables = list(tables)

    def __repr__(self) -> str:
        return "\n\n".join(map(str, self.tables))

    def _repr_html_(self) -> str:
        parts = []
        for table in self.tables:
            parts.append(f"<b>{html.escape(table.title)}</b><table>")
            for tag, lines in (("th", [table.names]), ("td", table.rows)):
                for line in lines:
                    cells = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in line)
                    parts.append(f"<tr>{cells}</tr>")
            parts.append("</table>")
        return "".join(parts)


def make_report(predictor: Predictor) -> Report:
    """Makes short tables of what the model has learnt, from the files of its folder.

        print(classifier.report())

    Args:
        predictor: the model of a folder that a training has written.

    Returns:
        The training; the metrics of the evaluation, and the scores of each label, if the folder
        has them.

    Raises:
        InputError: the folder has no record of a training, or a file is damaged.
    """
    folder = predictor.path
    steps = [line for line in predictor.history if "loss" in line]
    tables = [_make_training_table(steps)]
    results = os.path.join(folder, "eval_results.txt")
    if files.exists(results):
        metrics = reading.read_metrics(results)
        shown = [name for name in _MAIN_METRICS if name in metrics] or list(metrics)
        rows = [[name.removeprefix("eval_"), f"{metrics[name]:.4g}"] for name in shown]
        tables.append(Table("Evaluation", ["metric", "value"], rows))
    matrix = os.path.join(folder, "confusion_matrix.tsv")
    if files.exists(matrix):
        tables.append(_make_label_table(matrix))
    return Report(tables)


def _make_training_table(steps: Sequence[Mapping[str, Any]]) -> Table:
    """Returns the table of some steps, evenly chosen."""
    count = min(_MOST_STEPS, len(steps))
    numbers = np.unique(np.linspace(0, len(steps) - 1, count).round().astype(int))
    rows = []
    for number in numbers:
        step = steps[number]
        cells = [str(step[_STEP])]
        for name in _SHOWN_STEPS:
            value = step.get(name)
            cells.append("" if value is None else f"{value:.4g}")
        rows.append(cells)
    return Table("Training", [_STEP, *_SHOWN_STEPS], rows)


def _make_label_table(path: str) -> Table:
    """Returns the scores of each label from a confusion matrix."""
    header, *lines = [line.split("\t") for line in reading.read_lines(path)]
    labels = header[1:]
    try:
        matrix = np.array([line[1:] for line in lines], np.int64)
    except ValueError:
        matrix = np.zeros(0)
    if not labels or matrix.shape != (len(labels), len(labels)):
        raise InputError(f"{path}: is no table of counts; evaluate the model again")
    names, *rows = score_rows(labels, matrix)
    return Table("Labels", names, rows)
