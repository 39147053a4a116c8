"""The table of an experiment as Markdown: means, deviations, the paper's numbers, and differences between the rows.

In: the values of a plan's cells. Out: text. A difference is compared with its standard error, and one of less than two
standard errors is called noise.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence

from official_bert.io.progress import clock_time
from official_bert.jobs.experiments.columns import ShownColumn
from official_bert.jobs.experiments.plan import Plan
from official_bert.jobs.experiments.results import Time, Value

NOISE_ERRORS = 2.0  # standard errors below which a difference says nothing
_EMPTY = "–"


@dataclasses.dataclass(frozen=True)
class Summary:
    """The values of a cell.

    Attributes:
        mean: of all seeds.
        deviation: the standard deviation of a sample; None of one value.
        count: the number of seeds.
    """

    mean: float
    deviation: float | None
    count: int


@dataclasses.dataclass(frozen=True)
class Difference:
    """How much a row is better than the first one.

    Attributes:
        value: the difference of the means.
        errors: the same in standard errors of the difference; None if a row has one value, or no value varies.
    """

    value: float
    errors: float | None

    @property
    def is_noise(self) -> bool | None:
        """Whether it is below two standard errors; None if nobody knows."""
        if self.errors is None:
            return None
        return abs(self.errors) < NOISE_ERRORS


def summary(values: Sequence[float]) -> Summary | None:
    """Returns mean, deviation and number of some values; None of no value."""
    if not values:
        return None
    mean = sum(values) / len(values)
    has_deviation = len(values) > 1 and all(map(math.isfinite, values))
    return Summary(mean, statistics.stdev(values) if has_deviation else None, len(values))


def difference(first: Summary, other: Summary) -> Difference:
    """Returns the difference of two rows, whose seeds are independent of each other (Welch's standard error)."""
    value = other.mean - first.mean
    if first.deviation is None or other.deviation is None:
        return Difference(value, None)
    error = math.hypot(*(each.deviation / math.sqrt(each.count) for each in (first, other)))
    return Difference(value, value / error if error else None)


def summaries(plan: Plan, values: Iterable[Value]) -> dict[tuple[str, str], Summary]:
    """Returns a summary for each row and column that has a value, by their labels."""
    found: dict[tuple[str, str], list[float]] = {}
    for value in values:
        found.setdefault((value.cell.row, value.cell.column.label), []).append(value.value)
    return {place: summary(each) for place, each in found.items()}


def is_smaller(plan: Plan) -> bool:
    """Tells whether a row's model is pre-trained at another scale than the paper's, and does not compare with it."""
    return not plan.scale.is_papers and any(row.encoder is None for row in plan.rows)


def markdown(plan: Plan, values: Sequence[Value], times: Sequence[Time]) -> str:
    """Returns the page of an experiment."""
    found = summaries(plan, values)
    parts = [f"# {plan.experiment.title}", _introduction(plan, values)]
    parts += [f"Left out: {sentence}." for sentence in plan.left_out]
    parts.append(_main_table(plan, found))
    if plan.experiment.is_ablation:
        first = plan.rows[0].label
        parts += [f"## Differences from {first}", _noise_sentence(plan), _differences(plan, found)]
    parts += ["## Times", _times_sentence(times), _times(times)]
    return "\n\n".join(parts) + "\n"


def _introduction(plan: Plan, values: Sequence[Value]) -> str:
    sentences = [
        f"{plan.experiment.source}.",
        f"Scale `{plan.scale.name}`: {plan.scale.summary}.",
        "A cell has the mean ± the standard deviation of our runs, and in parentheses their number; "
        f"{len(values)} of {len(plan.cells)} runs are counted.",
    ]
    if any(column.stands_in for column in plan.columns):
        sentences.append(
            "A column such as `A for B` has our results on the task A and the paper's on the task B, which do not "
            "compare."
        )
    own_sizes = {row.size: plan.scale.sizes[row.size] for row in plan.rows if row.size in plan.scale.sizes}
    if own_sizes:
        pairs = ", ".join(f"{paper} is {own}" for paper, own in own_sizes.items())
        sentences.append(f"Layers, hidden size and heads of the paper stand for smaller ones here: {pairs}.")
    if sizes := _ensemble_sizes(plan):
        sentences.append(f"An ensemble is one run, the mean of the predictions of {sizes}.")
    if is_smaller(plan):
        sentences.append(
            "The models and the data are smaller than the paper's: only differences between rows compare."
        )
    elif not plan.scale.is_papers:
        sentences.append("The models are given ones; recipes and data may be smaller than the paper's.")
    return " ".join(sentences)


def _ensemble_sizes(plan: Plan) -> str:
    """Says how many members the ensembles have at the scale; "" without ensembles."""
    declared = {row.label: row.ensemble for row in plan.rows}
    pairs = [
        (len(members), declared[cell.row])
        for cell in plan.cells
        if (members := cell.step.flag("ensemble_dirs"))
    ]
    return ", or ".join(
        f"{count} fine-tunings" + (f" instead of {wanted}" if count < wanted else "")
        for count, wanted in dict.fromkeys(pairs)
    )


def _noise_sentence(plan: Plan) -> str:
    sentences = [
        "Each cell has the difference of the means, and the same in standard errors of the difference. What is below "
        f"{NOISE_ERRORS:g} standard errors is marked as noise."
    ]
    if plan.scale.pretraining_seeds == 1 and any(row.size for row in plan.rows):
        sentences.append(
            "Every row was pre-trained once: the errors contain the noise of fine-tuning, and not that of pre-training."
        )
    return " ".join(sentences)


def _times_sentence(times: Sequence[Time]) -> str:
    sentences = [
        "The wall times (hours:minutes:seconds) of the finished steps, added up, also of steps that ran at the same "
        "time or that another experiment needed first."
    ]
    if num_resumed := sum(time.num_resumed for time in times):
        sentences.append(
            f"Interrupted steps, of which there are {num_resumed}, count with their last process only."
        )
    return " ".join(sentences)


def _times(times: Sequence[Time]) -> str:
    body = [[time.kind, f"{time.num_finished} of {time.count}", clock_time(time.secs)] for time in times]
    return _table(["steps", "finished", "wall time"], body)


def _main_table(plan: Plan, found: dict[tuple[str, str], Summary]) -> str:
    head, body = [""], [[row.label] for row in plan.rows]
    for column in plan.columns:
        head.append(column.heading)
        for row, line in zip(plan.rows, body, strict=True):
            line.append(_cell(found.get((row.label, column.label)), column))
        if any(column.label in row.paper for row in plan.rows):
            head.append(f"paper, {column.label}")
            for row, line in zip(plan.rows, body, strict=True):
                line.append(str(row.paper.get(column.label, _EMPTY)))
    return _table(head, body)


def _differences(plan: Plan, found: dict[tuple[str, str], Summary]) -> str:
    first, *others = plan.rows
    head, body = ["", *(column.heading for column in plan.columns)], []
    for row in others:
        line = [row.label]
        for column in plan.columns:
            pair = found.get((first.label, column.label)), found.get((row.label, column.label))
            line.append(_difference_cell(difference(*pair), column) if all(pair) else _EMPTY)
        body.append(line)
    return _table(head, body)


def _cell(found: Summary | None, column: ShownColumn) -> str:
    if found is None:
        return _EMPTY
    digits = _digits(column)
    deviation = "" if found.deviation is None else f" ± {found.deviation:.{digits}f}"
    return f"{found.mean:.{digits}f}{deviation} ({found.count})"


def _difference_cell(found: Difference, column: ShownColumn) -> str:
    value = f"{found.value:+.{_digits(column)}f}"
    if found.errors is None:
        return f"{value} (error unknown)"
    mark = ", within noise" if found.is_noise else ""
    return f"{value} ({abs(found.errors):.1f}{mark})"


def _digits(column: ShownColumn) -> int:
    return 2 if column.task is None else 1


def _table(head: list[str], body: list[list[str]]) -> str:
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in (head, rule, *body)
    )
