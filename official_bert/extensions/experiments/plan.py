"""The plan of an experiment at a scale: the cells of its table, and the steps that fill them.

Input: declarations. Output: for each cell the step with its result, and all steps before it.
Steps are values, so that two rows with equal steps share them. The plan reads no files.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from official_bert.extensions.experiments.columns import (
    ShownColumn,
    choose_columns,
    find_missing_extension,
)
from official_bert.extensions.experiments.declarations import (
    Catalogue,
    Experiment,
    Row,
    Scale,
)
from official_bert.extensions.experiments.planner import Planner
from official_bert.extensions.experiments.steps import (
    Step,
    order_steps,
)
from official_bert.io.errors import InputError


@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """A number of the table, with one seed, counted from 1, and the step that computes it."""

    row: str
    column: ShownColumn
    seed: int
    step: Step


@dataclasses.dataclass(frozen=True)
class Plan:
    """All cells of an experiment at a scale, and a sentence for each omitted row or column."""

    experiment: Experiment
    scale: Scale
    columns: list[ShownColumn]
    rows: list[Row]
    cells: list[Cell]
    left_out: list[str]

    @property
    def steps(self) -> list[Step]:
        """All steps, each once and after those that it needs."""
        return order_steps(cell.step for cell in self.cells)


def make_plan(
    experiment: Experiment,
    scale: Scale,
    catalogue: Catalogue,
    encoders: Iterable[str] = (),
    num_seeds: int | None = None,
    training_flags: Mapping[str, str] | None = None,
) -> Plan:
    """Expand an experiment into the cells of its table and their steps.

    Args:
        experiment: the declaration.
        scale: the sizes of its models and data.
        catalogue: the tasks.
        encoders: the names of the user's models; a row that needs another one is left out.
        num_seeds: the number of fine-tunings of each cell; None for that of the scale.
        training_flags: further flags of all trainings.

    Returns:
        The plan.

    Raises:
        InputError: no row or no column is left, or a step has a flag that its command rejects.
    """
    columns, omitted_columns = choose_columns(experiment, scale, catalogue)
    scripts = [column.task.script for column in columns if column.task]
    rows, omitted_rows = _choose_rows(experiment, scale, encoders, catalogue, scripts)
    left_out = omitted_columns + omitted_rows
    if not rows or not columns:
        reasons = "; ".join(left_out)
        raise InputError(f"{experiment.path}: nothing is left at --scale={scale.name}: {reasons}")
    planner = Planner(experiment.path, scale, catalogue, training_flags or {}, encoders)
    cells: list[Cell] = []
    for row in rows:
        for column in columns:
            for seed in planner.seeds(row, column, num_seeds or scale.seeds):
                cells.append(Cell(row.label, column, seed, planner.plan_step(row, column, seed)))
    return Plan(experiment, scale, columns, rows, cells, left_out)


def _choose_rows(
    experiment: Experiment,
    scale: Scale,
    encoders: Iterable[str],
    catalogue: Catalogue,
    scripts: Iterable[str],
) -> tuple[list[Row], list[str]]:
    """Returns the rows of a scale, and a sentence for each one that is left out."""
    rows = []
    left_out = []
    for row in experiment.rows:
        missing_extension = find_missing_extension(scripts, row.fine_tuning, catalogue)
        if row.label in scale.leaves_out:
            reason = f"--scale={scale.name} does not run it"
        elif row.first_task and row.first_task not in scale.tasks:
            reason = f"--scale={scale.name} has no task {row.first_task!r}"
        elif row.encoder and row.encoder not in encoders:
            reason = f"its model is not given; add --model={row.encoder}=FOLDER"
        elif missing_extension:
            reason = missing_extension
        else:
            rows.append(row)
            continue
        left_out.append(f"row {row.label!r}: {reason}")
    return rows, left_out
