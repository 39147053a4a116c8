"""The columns that an experiment has at a scale: its own tasks, and those that stand in for absent ones.

In: an experiment, a scale, the tasks. Out: the columns with the tasks that are run for them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from official_bert.errors import InputError
from official_bert.jobs.experiments.definitions import Catalogue, Column, Experiment, Scale, Task


@dataclasses.dataclass(frozen=True)
class ShownColumn:
    """A column of a table at some scale.

    Attributes:
        label: its label in the declaration, by which the paper's numbers are found.
        column: its declaration.
        task: the task that is run; None for a measure of the pre-trained model.
    """

    label: str
    column: Column
    task: Task | None = None

    @property
    def stands_in(self) -> bool:
        """Whether the task is not the column's own."""
        return self.task is not None and self.task.name != self.column.task

    @property
    def heading(self) -> str:
        """What stands above the column; a task that stands in is named first."""
        return f"{self.task.name} for {self.label}" if self.stands_in else self.label

    @property
    def metric(self) -> str:
        """The key of the results that is shown."""
        if self.task is None:
            return self.column.measure
        return self.task.metric if self.stands_in else self.column.metric or self.task.metric

    @property
    def factor(self) -> float:
        """What a metric is multiplied by: fractions are shown as percentages."""
        return 1.0 if self.task is None or self.task.percent else 100.0


def shown_columns(
    experiment: Experiment, scale: Scale, catalogue: Catalogue, is_present: Callable[[Task], bool]
) -> list[ShownColumn]:
    """Returns the columns that the scale has, in the order of the declaration.

    A task of the scale's own fills its columns. Then each other column gets the first of its stand-ins that is not
    shown yet; one without any is left out.

    Args:
        experiment: the experiment.
        scale: the scale.
        catalogue: the tasks.
        is_present: tells whether the data of a task are there, for a scale that takes only such tasks.

    Raises:
        InputError: no column is left.
    """

    def is_usable(name: str) -> bool:
        return name in scale.tasks and (not scale.only_present or is_present(catalogue.tasks[name]))

    wanted = {column.task for column in experiment.columns if column.task}
    filled = {name: name for name in wanted if is_usable(name)}
    for column in experiment.columns:
        if column.task and column.task not in filled:
            choices = scale.stand_ins.get(column.task, [])
            taken = set(filled.values())
            chosen = next((name for name in choices if is_usable(name) and name not in taken), None)
            if chosen:
                filled[column.task] = chosen
    shown: list[ShownColumn] = []
    for column in experiment.columns:
        if column.measure:
            shown.append(ShownColumn(column.label, column))
            continue
        task = catalogue.tasks[filled[column.task]] if column.task in filled else None
        if task and (column.set == "dev" or task.test_data):
            candidate = ShownColumn(column.label, column, task)
            if not (candidate.stands_in and any(_shows_the_same(candidate, other) for other in shown)):
                shown.append(candidate)
    if not any(column.task for column in shown) and wanted:
        where = (
            "--data_dir has data of none of its tasks" if scale.only_present else "it has none of its tasks"
        )
        raise InputError(
            f"{experiment.path}: has nothing to train at --scale={scale.name}: {where} or of their stand-ins "
            f"({', '.join(sorted(wanted))}); choose another scale, or get data"
        )
    return shown


def _shows_the_same(one: ShownColumn, other: ShownColumn) -> bool:
    """Whether two columns are one run of the same task with the same metric, as MNLI-m and MNLI-mm with a stand-in."""
    parts = [
        (
            shown.task and shown.task.name,
            shown.metric,
            shown.column.set,
            shown.column.at,
            shown.column.fine_tuning,
        )
        for shown in (one, other)
    ]
    return parts[0] == parts[1]
