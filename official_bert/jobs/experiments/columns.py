"""The columns that an experiment has at a scale: its own tasks, and those that stand in for absent ones.

In: an experiment, a scale, the tasks. Out: the columns with the tasks that are run for them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from official_bert.io.errors import InputError
from official_bert.jobs.experiments.definitions import Catalogue, Column, Experiment, Scale, Task

# Words in the names of metrics between -1 and 1.
_FRACTIONS = frozenset({"accuracy", "f1", "matthews", "pearson", "precision", "recall", "spearman"})


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
        """What a metric is multiplied by: the fractions among a task's metrics are shown as percentages."""
        is_fraction = self.task and not self.task.percent and _FRACTIONS.intersection(self.metric.split("_"))
        return 100.0 if is_fraction else 1.0


def shown_columns(
    experiment: Experiment, scale: Scale, catalogue: Catalogue, is_present: Callable[[Task], bool]
) -> tuple[list[ShownColumn], list[str]]:
    """Returns the columns that the scale has, in the order of the declaration.

    A task of the scale's own fills its columns. Then each other column gets the first of its stand-ins that is not
    shown yet; one without any is left out.

    Args:
        experiment: the experiment.
        scale: the scale.
        catalogue: the tasks.
        is_present: tells whether the data of a task are there, for a scale that takes only such tasks.

    Returns:
        The columns, and a sentence for each one that is left out.

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
    left_out: list[str] = []
    for column in experiment.columns:
        if column.measure:
            shown.append(ShownColumn(column.label, column))
            continue
        candidate = None
        if column.task in filled:
            candidate = ShownColumn(column.label, column, catalogue.tasks[filled[column.task]])
        if reason := _missing(column, candidate, shown, scale):
            left_out.append(f"column {column.label!r}: {reason}")
        else:
            shown.append(candidate)
    if wanted and not any(column.task for column in shown):
        raise InputError(
            f"{experiment.path}: has nothing to train at --scale={scale.name} ({'; '.join(left_out)}); choose another "
            "scale, or get data"
        )
    return shown, left_out


def _missing(
    column: Column, candidate: ShownColumn | None, shown: list[ShownColumn], scale: Scale
) -> str | None:
    """Returns why a column of a task is left out; None if it is not."""
    stand_ins = scale.stand_ins.get(column.task, [])
    if candidate is None:
        if not {column.task, *stand_ins}.intersection(scale.tasks):
            return f"--scale={scale.name} has neither its task nor one that stands in for it"
        other = f", nor those of {' or '.join(stand_ins)}" if stand_ins else ""
        if column.task in scale.tasks:
            return f"--data_dir has not the data of {column.task}{other}"
        absent = ", or --data_dir lacks it" if scale.only_present else ""
        return f"what may stand in for its task ({', '.join(stand_ins)}) is shown already{absent}"
    if column.set == "test" and not candidate.task.test_data:
        return f"{candidate.task.name} has no test set with labels"
    if candidate.stands_in and any(_shows_the_same(candidate, other) for other in shown):
        return f"{candidate.task.name}, which stands in for its task, is shown already"
    return None


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
