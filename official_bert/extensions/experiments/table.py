"""The table of an experiment as Markdown: means, deviations, the paper's numbers, and differences.

Input: a plan and the results of its steps. Output: a page, and a line of JSON for each number and
each step. A difference between rows of less than two standard errors is called noise.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

from official_bert.extensions.experiments.columns import ShownColumn
from official_bert.extensions.experiments.execution import Result
from official_bert.extensions.experiments.plan import Cell, Plan
from official_bert.extensions.experiments.steps import Layout, Step
from official_bert.io.progress import clock_time
from official_bert.io.writing import markdown_table
from official_bert.metrics.summaries import Summary, difference, summarize

PERPLEXITY = "perplexity"
NOISE_ERRORS = 2.0  # A difference of fewer standard errors is noise.
_LOSSES = ("masked_lm_loss", "next_token_loss")  # The perplexity is the exponential of one.
_EMPTY = "–"
_ALIGN_RIGHT = "--:"
_VALUE_DIGITS = 4

Results = Mapping[Step, Result | None]  # The contents of result.json; None for an unfinished step.
Values = Mapping[Cell, float]  # nan for a metric without a value, infinite for a huge perplexity.
Summaries = Mapping[tuple[str, str], Summary]  # By the labels of the row and the column.


def collect_values(
    plan: Plan,
    results: Results,
    layout: Layout,
) -> tuple[dict[Cell, float], list[str]]:
    """Return the numbers of the table.

    Args:
        plan: the cells.
        results: the results of their steps.
        layout: the folders of the steps, for the sentences.

    Returns:
        The values of the finished cells, fractions in percent; and a sentence for each column whose
        metric is missing in a result.
    """
    values: dict[Cell, float] = {}
    faults: dict[str, str] = {}
    for cell in plan.cells:
        result = results[cell.step]
        if result is None:
            continue
        column = cell.column
        metrics = result["metrics"]
        try:
            value = metric_value(metrics, column.metric)
        except KeyError:
            metric_names = ", ".join(metrics) or "nothing"
            faults[column.label] = (
                f"column {column.label!r} has empty cells: the results of "
                f"{layout.folder(cell.step)} have no {column.metric!r}, but {metric_names}; "
                "correct the metric of the column or of the task"
            )
        else:
            values[cell] = round(column.factor * value, _VALUE_DIGITS)
    return values, list(faults.values())


def metric_value(metrics: Mapping[str, float | None], name: str) -> float:
    """Return a metric.

    Args:
        metrics: the metrics of a result.
        name: the name of a metric, or `PERPLEXITY`, which is computed from the loss of masked words
            or of next tokens.

    Returns:
        The value; nan for a metric that is None, and infinity for a huge perplexity.

    Raises:
        KeyError: the results do not have the metric.
    """
    if name != PERPLEXITY:
        value = metrics[name]
        return math.nan if value is None else value
    loss_names = [key for key in _LOSSES if key in metrics] or _LOSSES
    loss = metric_value(metrics, loss_names[0])
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def format_json_lines(plan: Plan, values: Values, results: Results, layout: Layout) -> list[str]:
    """Return the results as lines of JSON.

    Args:
        plan: the cells.
        values: the values of the finished cells.
        results: the results of all steps.
        layout: the folders of the steps.

    Returns:
        A line for each value, null if it is not finite, and a line for each finished step.
    """
    common_fields = {"experiment": plan.experiment.name, "scale": plan.scale.name}
    parent_dir = os.path.dirname(layout.steps_dir)
    lines = []
    for cell, value in values.items():
        column = cell.column
        result = results[cell.step]
        assert result is not None  # Cells with values have results.
        fields = {
            **common_fields,
            "arm": cell.row,
            "column": column.heading,
            "task": column.task.name if column.task else None,
            "seed": cell.seed,
            "metric": column.metric,
            "value": value if math.isfinite(value) else None,
            "secs": result["secs"],
            "folder": os.path.relpath(layout.folder(cell.step), parent_dir),
        }
        lines.append(json.dumps(fields))
    for step, result in results.items():
        if result is not None:
            fields = {**common_fields, "step": step.name, **_run_fields(step, result)}
            lines.append(json.dumps(fields))
    return lines


def _run_fields(step: Step, result: Result) -> dict[str, Any]:
    fields = {"seed": step.seed}
    for name in ("commit", "secs", "is_resumed", "command"):
        fields[name] = result.get(name)
    return fields


def format_page(plan: Plan, values: Values, results: Results) -> str:
    """Return the page of an experiment.

    Args:
        plan: the cells.
        values: the values of the finished cells.
        results: the results of all steps.

    Returns:
        The page as Markdown.
    """
    numbers: dict[tuple[str, str], list[float]] = {}
    for cell, value in values.items():
        numbers.setdefault((cell.row, cell.column.label), []).append(value)
    summaries = {labels: summarize(each) for labels, each in numbers.items()}
    parts = [
        f"# {plan.experiment.title}",
        " ".join(_introduction(plan, len(values))),
    ]
    parts += [f"Left out: {sentence}." for sentence in plan.left_out]
    parts.append(_main_table(plan, summaries))
    if plan.experiment.is_ablation:
        parts += [
            f"## Differences from {plan.rows[0].label}",
            _noise_sentence(plan),
            _differences(plan, summaries),
        ]
    parts += ["## Times", *_times(results)]
    parts += ["## Runs", *_runs(results)]
    return "\n\n".join(parts) + "\n"


def _introduction(plan: Plan, num_values: int) -> Iterable[str]:
    sizes = plan.scale.sizes
    is_papers = plan.scale.name == "paper"
    yield f"{plan.experiment.source}."
    yield f"Scale `{plan.scale.name}`: {plan.scale.summary}."
    yield (
        "A cell has the mean ± the standard deviation of our runs, and their number in parentheses."
    )
    yield f"{num_values} of {len(plan.cells)} runs are counted."
    if any(column.stand_in for column in plan.columns):
        yield "In a column such as `A for B`, our results are on task A and the paper's on task B."
        yield "Do not compare the two."
    paper_sizes = dict.fromkeys(row.size for row in plan.rows if row.size in sizes)
    if paper_sizes:
        replacements = ", ".join(f"{sizes[size]} for {size}" for size in paper_sizes)
        yield (
            f"Smaller numbers replace the paper's layers, hidden size and heads: {replacements}."
        )
    ensemble_sizes = {len(cell.step.flag("ensemble_dirs", ())) for cell in plan.cells}
    ensemble_sizes.discard(0)
    if ensemble_sizes:
        counts = " or ".join(str(size) for size in sorted(ensemble_sizes))
        yield f"An ensemble is one run, the mean of the predictions of {counts} fine-tunings."
    if not is_papers and any(row.size for row in plan.rows):
        yield (
            "The models and the data are smaller than the paper's, so compare only the differences "
            "between rows."
        )
    elif not is_papers:
        yield "The models are existing ones; recipes and data may be smaller than the paper's."


def _noise_sentence(plan: Plan) -> str:
    sentence = (
        "Each cell has the difference of the means and, in parentheses, the same in standard "
        f"errors of the difference. A difference below {NOISE_ERRORS:g} standard errors is marked "
        "as noise."
    )
    if plan.scale.pretraining_seeds == 1 and any(row.size for row in plan.rows):
        sentence += " Every row was pre-trained once: the errors contain the noise of fine-tuning, "
        sentence += "and not that of pre-training."
    return sentence


def _times(results: Results) -> list[str]:
    sentence = (
        "Each row has the sum of the wall times (hours:minutes:seconds) of its finished steps. It "
        "includes steps that ran at the same time, and steps that another experiment ran first."
    )
    finished = {step: result for step, result in results.items() if result is not None}
    num_resumed = sum(result["is_resumed"] for result in finished.values())
    if num_resumed:
        sentence += (
            f" Interrupted steps, of which there are {num_resumed}, count with their last process "
            "only."
        )
    body = []
    for kind in dict.fromkeys(step.kind for step in results):
        steps = [step for step in results if step.kind == kind]
        secs = [finished[step]["secs"] for step in steps if step in finished]
        body.append(
            [
                kind,
                f"{len(secs)} of {len(steps)}",
                clock_time(sum(secs)),
            ]
        )
    head = ["steps", "finished", "wall time"]
    return [sentence, markdown_table(head, body, _ALIGN_RIGHT)]


def _runs(results: Results) -> list[str]:
    body = []
    for step, result in results.items():
        if result is None:
            continue
        body.append(
            [
                step.name,
                str(step.seed or _EMPTY),
                result.get("commit") or _EMPTY,
                clock_time(result["secs"]),
            ]
        )
    sentence = "The command of each run is in the JSON Lines file next to this page."
    head = ["step", "seed", "commit", "wall time"]
    return [sentence, markdown_table(head, body, _ALIGN_RIGHT)]


def _main_table(plan: Plan, summaries: Summaries) -> str:
    head = [""]
    body = [[row.label] for row in plan.rows]
    for column in plan.columns:
        label = column.label
        has_paper = any(label in row.paper for row in plan.rows)
        head.append(column.heading)
        if has_paper:
            head.append(f"paper, {label}")
        for row, line in zip(plan.rows, body, strict=True):
            summary = summaries.get((row.label, label))
            line.append(_format_summary(summary, _count_digits(column)))
            if has_paper:
                line.append(str(row.paper.get(label, _EMPTY)))
    return markdown_table(head, body, _ALIGN_RIGHT)


def _differences(plan: Plan, summaries: Summaries) -> str:
    first_row = plan.rows[0]
    body = []
    for row in plan.rows[1:]:
        line = [row.label]
        for column in plan.columns:
            first = summaries.get((first_row.label, column.label))
            other = summaries.get((row.label, column.label))
            if first is None or other is None:
                line.append(_EMPTY)
            else:
                value, errors = difference(first, other)
                line.append(_format_difference(value, errors, _count_digits(column)))
        body.append(line)
    head = ["", *(column.heading for column in plan.columns)]
    return markdown_table(head, body, _ALIGN_RIGHT)


def _format_summary(summary: Summary | None, num_digits: int) -> str:
    if summary is None:
        return _EMPTY
    mean = f"{summary.mean:.{num_digits}f}"
    if summary.deviation is not None:
        mean += f" ± {summary.deviation:.{num_digits}f}"
    return f"{mean} ({summary.count})"


def _format_difference(value: float, errors: float | None, num_digits: int) -> str:
    text = f"{value:+.{num_digits}f}"
    if errors is None:
        return f"{text} (error unknown)"
    noise = ", within noise" if abs(errors) < NOISE_ERRORS else ""
    return f"{text} ({abs(errors):.1f}{noise})"


def _count_digits(column: ShownColumn) -> int:
    """Returns the number of shown digits after the point."""
    return 2 if column.task is None else 1
