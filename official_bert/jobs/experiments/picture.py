"""Draws the table of an experiment: a panel for each column, or a curve for each row if columns differ in `at` only.

In: the values of a plan's cells. Out: a PNG file with error bars of one standard deviation, the paper's numbers beside
ours, with an axis of their own where another task stands in or a model was pre-trained at a smaller scale.
"""

from __future__ import annotations

from collections.abc import Sequence

from official_bert.io.pictures import axis_at_the_right, panels
from official_bert.jobs.experiments.columns import ShownColumn
from official_bert.jobs.experiments.plan import Plan
from official_bert.jobs.experiments.results import Value
from official_bert.jobs.experiments.table import Summary, is_smaller, summaries

_PAPER_COLOR = "tab:orange"
_OFFSET = 0.12  # between our points and the paper's
# Above the panel, where it hides no point.
_LEGEND = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 2, "frameon": False}


def draw(path: str, plan: Plan, values: Sequence[Value]):
    """Draws the picture.

    Raises:
        InputError: matplotlib is missing, or the file cannot be written.
    """
    found = summaries(plan, values)
    title = f"{plan.experiment.title} (scale {plan.scale.name})"
    if _is_one_curve(plan.columns):
        _draw_curves(path, title, plan, found)
    else:
        _draw_panels(path, title, plan, found)


def _is_one_curve(columns: Sequence[ShownColumn]) -> bool:
    """Whether the columns show the same after different numbers of updates."""
    shown = [(column.task, column.metric, column.column.set, column.column.fine_tuning) for column in columns]
    return all(each == shown[0] for each in shown) and all(column.column.at is not None for column in columns)


def _draw_curves(path: str, title: str, plan: Plan, found: dict[tuple[str, str], Summary]):
    first = plan.columns[0]
    name = first.column.task or first.metric  # a label has the number of updates in it
    places = {column.label: column.column.at * plan.num_steps for column in plan.columns}
    with panels(path, title, 1) as (axis,):
        axis.set_xlabel("pre-training steps")
        axis.set_ylabel(f"{first.task.name} for {name}" if first.stands_in else name)
        axis.grid(alpha=0.3)
        beside = axis
        has_paper = any(label in row.paper for row in plan.rows for label in places)
        if has_paper and not _compares(first, plan):
            beside = axis_at_the_right(axis, f"paper, {name}", "black")
        handles = []
        for row in plan.rows:
            shown = [(label, found[row.label, label]) for label in places if (row.label, label) in found]
            curve = axis.errorbar(
                [places[label] for label, _ in shown],
                [each.mean for _, each in shown],
                [each.deviation or 0.0 for _, each in shown],
                label=row.label,
                marker="o",
                capsize=3,
            )
            handles.append(curve)
            if paper := [(place, row.paper[label]) for label, place in places.items() if label in row.paper]:
                look = {"color": curve.lines[0].get_color(), "label": f"{row.label}, paper"}
                handles += beside.plot(*zip(*paper, strict=True), "D", **look)
        axis.legend(handles=handles, **_LEGEND)


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
                beside = axis
                if not _compares(column, plan):
                    beside = axis_at_the_right(axis, f"paper, {column.label}", _PAPER_COLOR)
                handles += beside.plot(*zip(*paper, strict=True), "D", color=_PAPER_COLOR, label="paper")
            axis.legend(handles=handles, **_LEGEND)
        axes[-1].set_xticks(places, [row.label for row in plan.rows], rotation=20, ha="right")


def _paper_points(column: ShownColumn, plan: Plan) -> list[tuple[float, float]]:
    """(place, value) for each row that has a number of the paper in this column."""
    values = [(place, row.paper.get(column.label)) for place, row in enumerate(plan.rows)]
    return [(place + _OFFSET, value) for place, value in values if value is not None]


def _compares(column: ShownColumn, plan: Plan) -> bool:
    """Whether our numbers and the paper's can have one axis."""
    return not (is_smaller(plan) or column.stands_in)
