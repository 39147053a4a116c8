"""Draws the table of an experiment: a panel for each column, or a curve for each row if the columns are steps.

In: the values of a plan's cells. Out: a PNG file with error bars of one standard deviation, the paper's numbers beside
ours, with an axis of their own where another task stands in or a model was pre-trained at a smaller scale.
"""

from __future__ import annotations

from collections.abc import Sequence

from official_bert.jobs.experiments.columns import ShownColumn
from official_bert.jobs.experiments.plan import Plan
from official_bert.jobs.experiments.results import Value
from official_bert.jobs.experiments.table import Summary, is_smaller, summaries
from official_bert.jobs.pictures import axis_at_the_right, panels

_PAPER_COLOR = "tab:orange"
_OFFSET = 0.12  # between our points and the paper's


def draw(path: str, plan: Plan, values: Sequence[Value]):
    """Draws the picture.

    Raises:
        InputError: matplotlib is missing, or the file cannot be written.
    """
    found = summaries(plan, values)
    title = f"{plan.experiment.title} (scale {plan.scale.name})"
    if all(column.column.at is not None for column in plan.columns):
        _draw_curves(path, title, plan, found)
    else:
        _draw_panels(path, title, plan, found)


def _draw_curves(path: str, title: str, plan: Plan, found: dict[tuple[str, str], Summary]):
    with panels(path, title, 1) as (axis,):
        for row in plan.rows:
            shown = [
                (column.column.at * plan.num_steps, found[row.label, column.label])
                for column in plan.columns
                if (row.label, column.label) in found
            ]
            axis.errorbar(
                [place for place, _ in shown],
                [each.mean for _, each in shown],
                [each.deviation or 0.0 for _, each in shown],
                label=row.label,
                marker="o",
                capsize=3,
            )
        axis.set_xlabel("pre-training steps")
        axis.set_ylabel(plan.columns[0].task.name)
        axis.grid(alpha=0.3)
        axis.legend()


def _draw_panels(path: str, title: str, plan: Plan, found: dict[tuple[str, str], Summary]):
    places = range(len(plan.rows))
    with panels(path, title, len(plan.columns)) as axes:
        for axis, column in zip(axes, plan.columns, strict=True):
            ours = [(place, found.get((row.label, column.label))) for place, row in enumerate(plan.rows)]
            ours = [(place, each) for place, each in ours if each]
            points = axis.errorbar(
                [place - _OFFSET for place, _ in ours],
                [each.mean for _, each in ours],
                [each.deviation or 0.0 for _, each in ours],
                label="ours",
                linestyle="",
                marker="o",
                capsize=3,
            )
            axis.set_ylabel(column.heading)
            axis.set_xlim(-0.5, len(plan.rows) - 0.5)
            axis.grid(alpha=0.3)
            handles = [points]
            if paper := _paper_points(column, plan):
                compares = not (is_smaller(plan) or column.stands_in)
                beside = axis if compares else axis_at_the_right(axis, f"paper, {column.label}", _PAPER_COLOR)
                handles += beside.plot(*zip(*paper, strict=True), "D", color=_PAPER_COLOR, label="paper")
            axis.legend(
                handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False
            )  # above the panel, where it hides no point
        axes[-1].set_xticks(places, [row.label for row in plan.rows], rotation=20, ha="right")


def _paper_points(column: ShownColumn, plan: Plan) -> list[tuple[float, float]]:
    """(place, value) for each row that has a number of the paper in this column."""
    values = [(place, row.paper.get(column.label)) for place, row in enumerate(plan.rows)]
    return [(place + _OFFSET, value) for place, value in values if value is not None]
