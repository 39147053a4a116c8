"""The columns of an experiment at a scale: the tasks to run, and the metrics to show.

Input: declarations. Output: the columns that the scale has, and the reasons for omitting others.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from official_bert import catalog
from official_bert.extensions.experiments.declarations import (
    Catalogue,
    Column,
    Experiment,
    Flags,
    Scale,
    Task,
)
from official_bert.options.fields import flag_fields

# Metrics with one of these words in their names are between -1 and 1.
_FRACTIONS = frozenset({"accuracy", "f1", "matthews", "pearson", "precision", "recall", "spearman"})


@dataclasses.dataclass(frozen=True)
class ShownColumn:
    """A column of a table at some scale.

    Args:
        declared: its declaration.
        task: the task to run, which may stand in for the declared one; None for a measure.
    """

    declared: Column
    task: Task | None

    @property
    def label(self) -> str:
        """The label of the declaration."""
        return self.declared.label

    @property
    def stand_in(self) -> Task | None:
        """The task, if it is not the declared one."""
        if self.task is None or self.task.name == self.declared.task:
            return None
        return self.task

    @property
    def heading(self) -> str:
        """The label in the table, which names a stand-in."""
        return f"{self.stand_in.name} for {self.label}" if self.stand_in else self.label

    @property
    def metric(self) -> str:
        """The key of the shown result; a stand-in shows the metric of its own task."""
        if self.stand_in is not None:
            return self.stand_in.metric
        if self.task is not None:
            return self.declared.metric or self.task.metric
        assert self.declared.measure is not None  # Declarations have a task or a measure.
        return self.declared.measure

    @property
    def factor(self) -> float:
        """The factor of a metric: a task's fractions are shown as percentages."""
        if self.task is None or self.task.percent:
            return 1.0
        return 100.0 if _FRACTIONS.intersection(self.metric.split("_")) else 1.0

    @property
    def number(self) -> tuple:
        """The identity of the shown number, equal for MNLI-m and MNLI-mm with one stand-in."""
        declared = dataclasses.replace(self.declared, label="", task=None, metric=None)
        return self.task, self.metric, declared


def choose_columns(
    experiment: Experiment, scale: Scale, catalogue: Catalogue
) -> tuple[list[ShownColumn], list[str]]:
    """Return the columns of an experiment at a scale.

    A stand-in replaces a task that the scale lacks, unless it is the task of another column, shown
    or left out.

    Args:
        experiment: the declaration.
        scale: the scale with its tasks and stand-ins.
        catalogue: all tasks by name, and the flags of extensions.

    Returns:
        The columns, and a sentence for each one that is left out.
    """
    task_names = _replace_missing_tasks(experiment, scale)
    columns: list[ShownColumn] = []
    left_out: list[str] = []
    for column in experiment.columns:
        task = None
        if column.task in task_names:
            task = catalogue.tasks.get(task_names[column.task])
        candidate = ShownColumn(column, task)
        reason = _find_reason_to_omit(candidate, scale, columns)
        if task and reason is None:
            reason = find_missing_extension([task.script], column.fine_tuning, catalogue)
        if reason is None:
            columns.append(candidate)
        else:
            left_out.append(f"column {column.label!r}: {reason}")
    return columns, left_out


def find_missing_extension(
    scripts: Iterable[str], flags: Flags, catalogue: Catalogue
) -> str | None:
    """Return why a row or a column is left out whose flags belong to an extension.

    Args:
        scripts: the commands of its fine-tunings.
        flags: the flags of its fine-tunings.
        catalogue: the flags of extensions, in `with_flag`.

    Returns:
        The reason in words, or None if all commands have these flags.
    """
    extension_flags = [name for name in flags if name in catalogue.with_flag]
    for script in scripts:
        names = {field.name for field in flag_fields(catalog.options_class(script))}
        for flag in extension_flags:
            if flag not in names:
                return f"{script} has no --{flag}, because its extension is not installed"
    return None


def _replace_missing_tasks(experiment: Experiment, scale: Scale) -> dict[str, str]:
    """Returns the tasks to run by the names of the declared ones, without the omitted ones."""
    declared_names = [column.task for column in experiment.columns if column.task]
    names = {name: name for name in declared_names if name in scale.tasks}
    for name in declared_names:
        stand_in = scale.stand_ins.get(name)
        if name not in names and stand_in is not None and stand_in not in names.values():
            names[name] = stand_in
    return names


def _find_reason_to_omit(
    candidate: ShownColumn, scale: Scale, columns: Sequence[ShownColumn]
) -> str | None:
    """Returns why a column is left out, in words; None if it is shown beside earlier columns."""
    column = candidate.declared
    task = candidate.task
    if column.label in scale.leaves_out:
        return f"--scale={scale.name} does not measure it"
    if column.task and not task:
        stand_in = scale.stand_ins.get(column.task)
        if not stand_in:
            return f"--scale={scale.name} has neither its task nor one that stands in for it"
        return f"what may stand in for its task ({stand_in}) is that of another column"
    if task and column.set == "test" and not task.test_data:
        return f"{task.name} has no test set with labels"
    if candidate.stand_in and candidate.number in [each.number for each in columns]:
        return f"{candidate.stand_in.name}, which stands in for its task, is shown already"
    return None
