"""The table of an experiment as Markdown: means, deviations, the paper's numbers, and differences
between the rows.

In: a plan and the results of its steps. Out: text, and a line of JSON for each number and each
step. A difference is compared with its standard error, and one of less than two standard errors is
called noise.
"""

import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from official_bert.extensions.experiments.plan import Cell, Plan, ShownColumn
from official_bert.extensions.experiments.steps import Layout, Step
from official_bert.io.progress import clock_time
from official_bert.io.writing import markdown_table

PERPLEXITY = "perplexity"
NOISE_ERRORS = 2.0  # standard errors below which a difference says nothing
_LOSSES = ("masked_lm_loss", "next_token_loss")  # of which the perplexity is the exponential
_EMPTY, _NUMBERS, _LINE_DIGITS = "–", "--:", 4

Results = Mapping[Step, dict | None]  # what result.json says; None of a step that is not finished
Values = Mapping[Cell, float]  # nan of a model that has learnt nothing, infinite for a perplexity


class Summary(NamedTuple):
    """The values of a cell: their mean, the standard deviation of a sample (None of one value),
    their number.
    """

    mean: float
    deviation: float | None
    count: int


def values_of(plan: Plan, results: Results, layout: Layout) -> tuple[dict[Cell, float], list[str]]:
    """Returns the values of cells, fractions in percent, and a sentence for each column whose
    metric results lack.
    """
    values, faults = {}, {}
    for cell in plan.cells:
        if (result := results[cell.step]) is None:
            continue
        metrics, name = result["metrics"], cell.column.metric
        try:
            values[cell] = round(cell.column.factor * value_of(metrics, name), _LINE_DIGITS)
        except KeyError:
            faults[cell.column.label] = (
                f"column {cell.column.label!r} has empty cells: the results of "
                f"{layout.folder(cell.step)} have no {name!r}, but "
                f"{', '.join(metrics) or 'nothing'}; correct the metric of the column or of the "
                "task"
            )
    return values, list(faults.values())


def value_of(metrics: Mapping[str, float | None], name: str) -> float:
    """Returns a metric; the perplexity is made of the loss of masked words or of next tokens."""
    if name != PERPLEXITY:
        return math.nan if metrics[name] is None else metrics[name]
    loss = value_of(metrics, next((key for key in _LOSSES if key in metrics), _LOSSES[0]))
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def lines_of(plan: Plan, values: Values, results: Results, layout: Layout) -> list[str]:
    """Returns a line of JSON for each value, null for one that is no finite number, and one for
    each finished step.
    """
    common_fields, lines = {"experiment": plan.experiment.name, "scale": plan.scale.name}, []
    for cell, value in values.items():
        column, folder = (
            cell.column,
            os.path.relpath(layout.folder(cell.step), os.path.dirname(layout.steps_dir)),
        )
        line = common_fields | {"arm": cell.row}
        line |= {
            "column": column.heading,
            "task": column.task.name if column.task else None,
            "seed": cell.seed,
        }
        line |= {"metric": column.metric, "value": value if math.isfinite(value) else None}
        lines.append(json.dumps(line | {"secs": results[cell.step]["secs"], "folder": folder}))
    ran = {step: result for step, result in results.items() if result is not None}
    return lines + [
        json.dumps(common_fields | {"step": step.name} | _run_fields(step, result))
        for step, result in ran.items()
    ]


def _run_fields(step: Step, result: Mapping) -> dict:
    return {
        "seed": step.seed,
        **{name: result.get(name) for name in ("commit", "secs", "is_resumed", "command")},
    }


def summary(values: Sequence[float]) -> Summary:
    """Returns mean, deviation and number of some values, at least one."""
    has_deviation = len(values) > 1 and all(map(math.isfinite, values))
    deviation = statistics.stdev(values) if has_deviation else None
    return Summary(sum(values) / len(values), deviation, len(values))


def difference(first: Summary, other: Summary) -> tuple[float, float | None]:
    """Returns a difference of means, and the same in standard errors (Welch's) if values vary in
    both rows.
    """
    value = other.mean - first.mean
    if first.deviation is None or other.deviation is None:
        return value, None
    error = math.hypot(*(each.deviation / math.sqrt(each.count) for each in (first, other)))
    return value, value / error if error else None


def markdown(plan: Plan, values: Values, results: Results) -> str:
    numbers: dict[tuple[str, str], list[float]] = {}
    for cell, value in values.items():
        numbers.setdefault((cell.row, cell.column.label), []).append(value)
    summaries = {place: summary(each) for place, each in numbers.items()}
    parts = [f"# {plan.experiment.title}", " ".join(_introduction(plan, len(values)))]
    parts += [f"Left out: {sentence}." for sentence in plan.left_out]
    parts.append(_main_table(plan, summaries))
    if plan.experiment.is_ablation:
        parts += [f"## Differences from {plan.rows[0].label}", _noise_sentence(plan)]
        parts.append(_differences(plan, summaries))
    return "\n\n".join([*parts, "## Times", *_times(results), "## Runs", *_runs(results)]) + "\n"


def _introduction(plan: Plan, num_values: int) -> Iterable[str]:
    sizes, is_papers = plan.scale.sizes, plan.scale.name == "paper"
    yield f"{plan.experiment.source}. Scale `{plan.scale.name}`: {plan.scale.summary}."
    yield (
        "A cell has the mean ± the standard deviation of our runs, and in parentheses their number;"
    )
    yield f"{num_values} of {len(plan.cells)} runs are counted."
    if any(column.stands_in for column in plan.columns):
        yield (
            "A column such as `A for B` has our results on the task A and the paper's on the task "
            "B,"
        )
        yield "which do not compare."
    if pairs := dict.fromkeys(
        f"{row.size} is {sizes[row.size]}" for row in plan.rows if row.size in sizes
    ):
        yield (
            "Layers, hidden size and heads of the paper stand for smaller ones here: "
            f"{', '.join(pairs)}."
        )
    if members := {len(cell.step.flag("ensemble_dirs", ())) for cell in plan.cells} - {0}:
        counts = " or ".join(map(str, sorted(members)))
        yield f"An ensemble is one run, the mean of the predictions of {counts} fine-tunings."
    if not is_papers and any(row.size for row in plan.rows):
        yield (
            "The models and the data are smaller than the paper's: only differences between rows "
            "compare."
        )
    elif not is_papers:
        yield "The models are given ones; recipes and data may be smaller than the paper's."


def _noise_sentence(plan: Plan) -> str:
    sentence = (
        "Each cell has the difference of the means, and the same in standard errors of the "
        f"difference. What is below {NOISE_ERRORS:g} standard errors is marked as noise."
    )
    if plan.scale.pretraining_seeds == 1 and any(row.size for row in plan.rows):
        sentence += " Every row was pre-trained once: the errors contain the noise of fine-tuning, "
        sentence += "and not that of pre-training."
    return sentence


def _times(results: Results) -> list[str]:
    sentence = (
        "The wall times (hours:minutes:seconds) of the finished steps, added up, also of steps "
        "that ran at the same time or that another experiment needed first."
    )
    finished = {step: result for step, result in results.items() if result is not None}
    if num_resumed := sum(result["is_resumed"] for result in finished.values()):
        sentence += (
            f" Interrupted steps, of which there are {num_resumed}, count with their last process "
            "only."
        )
    body = []
    for kind in dict.fromkeys(step.kind for step in results):
        secs = [result["secs"] for step, result in finished.items() if step.kind == kind]
        count = sum(step.kind == kind for step in results)
        body.append([kind, f"{len(secs)} of {count}", clock_time(sum(secs))])
    return [sentence, markdown_table(["steps", "finished", "wall time"], body, _NUMBERS)]


def _runs(results: Results) -> list[str]:
    body = []
    for step, result in results.items():
        if result is not None:
            run = _run_fields(step, result)
            body.append(
                [
                    step.name,
                    str(run["seed"] or _EMPTY),
                    run["commit"] or _EMPTY,
                    clock_time(run["secs"]),
                ]
            )
    sentence = "The command of each is in the lines of JSON beside this page."
    return [sentence, markdown_table(["step", "seed", "commit", "wall time"], body, _NUMBERS)]


def _main_table(plan: Plan, summaries: Mapping[tuple[str, str], Summary]) -> str:
    head, body = [""], [[row.label] for row in plan.rows]
    for column in plan.columns:
        head.append(column.heading)
        has_paper = any(column.label in row.paper for row in plan.rows)
        head += [f"paper, {column.label}"] * has_paper
        for row, line in zip(plan.rows, body, strict=True):
            line.append(_cell(summaries.get((row.label, column.label)), column))
            line += [str(row.paper.get(column.label, _EMPTY))] * has_paper
    return markdown_table(head, body, _NUMBERS)


def _differences(plan: Plan, summaries: Mapping[tuple[str, str], Summary]) -> str:
    first, *others = plan.rows
    body = []
    for row in others:
        line = [row.label]
        for column in plan.columns:
            pair = [summaries.get((label, column.label)) for label in (first.label, row.label)]
            line.append(
                _EMPTY if None in pair else _difference_cell(*difference(*pair), _digits(column))
            )
        body.append(line)
    return markdown_table(["", *(column.heading for column in plan.columns)], body, _NUMBERS)


def _cell(cell_summary: Summary | None, column: ShownColumn) -> str:
    if cell_summary is None:
        return _EMPTY
    deviation = (
        "" if cell_summary.deviation is None else f" ± {cell_summary.deviation:.{_digits(column)}f}"
    )
    return f"{cell_summary.mean:.{_digits(column)}f}{deviation} ({cell_summary.count})"


def _difference_cell(value: float, errors: float | None, digits: int) -> str:
    if errors is None:
        return f"{value:+.{digits}f} (error unknown)"
    return (
        f"{value:+.{digits}f} "
        f"({abs(errors):.1f}{', within noise' if abs(errors) < NOISE_ERRORS else ''})"
    )


def _digits(column: ShownColumn) -> int:
    return 2 if column.task is None else 1
