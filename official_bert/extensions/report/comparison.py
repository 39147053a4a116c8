"""The page that compares several runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.extensions.report.charts import Chart, Series, draw_curves
from official_bert.extensions.report.drawing import Picture
from official_bert.extensions.report.page import Page, Section
from official_bert.extensions.report.run_sections import describe_state, format_metric, smooth
from official_bert.io.markup import Cell, make_table
from official_bert.options.fields import format_value
from official_bert.training.run_record import Line, RunRecord, is_number

_CURVES = (
    "loss",
    "masked_lm_accuracy",
    "next_sentence_accuracy",
    "learning_rate",
)
_MOST_CURVES = 16  # of a chart; more cannot be told apart
_MOST_METRICS = 8


class _Group(NamedTuple):
    """Runs that differ only in their seeds."""

    settings: str
    runs: list[RunRecord]

    def values(self, metric: str) -> list[float]:
        """Returns the finite values of a metric on the first evaluated set."""
        values = [_find_value(run, metric) for run in self.runs]
        return [value for value in values if value is not None]


def make_comparison(runs: Sequence[RunRecord]) -> Page:
    """Returns the page about several runs, side by side.

    Args:
        runs: the runs.
    """
    names = _name_runs(runs)
    differing = _find_differing(runs)
    metrics = _list_metrics(runs)
    sections = [
        _tabulate_groups(_group_runs(runs, differing), metrics),
        _tabulate_runs(
            runs,
            names,
            differing,
            metrics,
        ),
        *_draw_all(runs, _shorten_names(names)),
    ]
    subtitle = ", ".join(run.folder for run in runs)
    return Page(f"Comparison of {len(runs)} runs", subtitle, sections)


def _name_runs(runs: Sequence[RunRecord]) -> list[str]:
    """Returns the names of the folders, with those of their parents if they are equal."""
    names = [run.name for run in runs]
    has_equal_names = len(set(names)) < len(names)
    return [run.folder for run in runs] if has_equal_names else names


def _shorten_names(names: Sequence[str]) -> list[str]:
    """Returns names without the words that all of them begin with, for legends."""
    common = os.path.commonprefix(names)  # noqa: RUF071 - names are compared by letters
    length = max(common.rfind("_"), common.rfind("/")) + 1
    return [name[length:] or name for name in names]


def _find_differing(runs: Sequence[RunRecord]) -> list[str]:
    """Returns the flags in which the runs differ, without those about where and what is done."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return [
        name for name in names if len({format_value(run.settings.get(name)) for run in runs}) > 1
    ]


def _list_metrics(runs: Sequence[RunRecord]) -> list[str]:
    """Returns the metrics that the table has: the main ones, then those of all sets."""
    main_metrics = [run.main_metric for run in runs if run.main_metric]
    metrics = [
        name
        for run in runs
        for results in list(run.results.values())[:1]
        for name in results
        if name.removeprefix("eval_") in ("accuracy", "loss", "macro_f1", "f1", "exact_match")
    ]
    return list(dict.fromkeys([*main_metrics, *metrics]))[:_MOST_METRICS]


def _find_value(run: RunRecord, metric: str) -> float | None:
    if metric == run.main_metric:
        return run.headline if is_number(run.headline) else None
    for results in run.results.values():
        value = results.get(metric)
        return value if is_number(value) else None
    return None


def _group_runs(runs: Sequence[RunRecord], differing: Sequence[str]) -> list[_Group]:
    groups: dict[str, _Group] = {}
    for run in runs:
        values = [f"{name}={format_value(run.settings.get(name))}" for name in differing]
        settings = ", ".join(values) or "the same flags"
        groups.setdefault(settings, _Group(settings, [])).runs.append(run)
    return list(groups.values())


def _tabulate_groups(groups: Sequence[_Group], metrics: Sequence[str]) -> Section:
    """Returns the table of the means and standard deviations over seeds."""
    rows = []
    for group in groups:
        cells: list = [group.settings, len(group.runs)]
        for metric in metrics:
            values = group.values(metric)
            if not values:
                cells.append("")
                continue
            mean = float(np.mean(values))
            text = format_metric(metric, mean)
            if len(values) > 1:
                text += f" ± {format_metric(metric, float(np.std(values, ddof=1)))}"
            cells.append(Cell(text, mean))
        rows.append(cells)
    note = "Runs that differ only in the seed are one row: their mean ± the deviation of one run."
    return Section("Means over seeds", [note, make_table(("flags", "runs", *metrics), rows)])


def _tabulate_runs(
    runs: Sequence[RunRecord],
    names: Sequence[str],
    differing: Sequence[str],
    metrics: Sequence[str],
) -> Section:
    rows = []
    for run, name in zip(runs, names, strict=True):
        cells: list = [name, str(run.start.get("seed"))]
        cells += [format_value(run.settings.get(flag)) for flag in differing]
        for metric in metrics:
            value = _find_value(run, metric)
            cells.append("" if value is None else Cell(format_metric(metric, value), value))
        loss = run.end.get("final_loss") if run.end else None
        cells.append(float(loss) if is_number(loss) else "")
        cells.append(describe_state(run))
        rows.append(cells)
    heads = ("run", "seed", *(f"--{flag}" for flag in differing), *metrics, "final loss", "state")
    return Section("All runs", [make_table(heads, rows)])


def _draw_all(runs: Sequence[RunRecord], names: Sequence[str]) -> list[Section]:
    shown = list(zip(names, runs, strict=True))[:_MOST_CURVES]
    train_lines = {name: run.train_lines for name, run in shown}
    evaluations = {name: run.evaluations for name, run in shown}
    metrics = dict.fromkeys(run.main_metric for _, run in shown if run.best_evaluation)
    training = [
        _draw_field(
            field,
            train_lines,
            is_smoothed=field != "learning_rate",
        )
        for field in _CURVES
    ]
    evaluated = [
        _draw_field(
            metric,
            evaluations,
            is_smoothed=False,
        )
        for metric in metrics
    ]
    sections = {
        "Training": (f"Running means of the first {len(shown)} runs.", training),
        "Evaluations during training": ("", evaluated),
    }
    return [
        Section(
            title,
            [note, *filter(None, pictures)],
        )
        for title, (note, pictures) in sections.items()
        if any(pictures)
    ]


def _draw_field(
    field: str,
    lines_by_name: Mapping[str, Sequence[Line]],
    is_smoothed: bool,
) -> Picture | None:
    """Returns the chart of a field of some lines, with a curve for each run.

    Args:
        field: the name of the field.
        lines_by_name: the lines by the name of the run.
        is_smoothed: whether running means are drawn.
    """
    curves = []
    for name, lines in lines_by_name.items():
        with_field = [line for line in lines if is_number(line.get(field))]
        values = [line[field] for line in with_field]
        steps = [line["step"] for line in with_field]
        curves.append(Series(name, steps, smooth(values) if is_smoothed else values))
    if not any(len(curve.xs) > 1 for curve in curves):
        return None
    label = field if field.startswith("eval_") else field.replace("_", " ")
    chart = Chart(
        f"compare_{field}",
        f"{label} of all runs",
        "step",
        label,
    )
    return draw_curves(chart, curves)
