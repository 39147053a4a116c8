"""The plan of an experiment at a scale: the cells of its table, and the steps that fill them.

In: declarations. Out: for each cell the step whose result it shows, with all steps that it needs.
Steps are values, so that two rows with equal steps share them. Nothing is read but the
declarations.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from official_bert import catalog
from official_bert.config import BertConfig
from official_bert.extensions.experiments.declarations import (
    MINIMAL_PAIRS,
    Catalogue,
    Column,
    Experiment,
    Flags,
    Row,
    Scale,
    Task,
)
from official_bert.extensions.experiments.steps import (
    CONFIG,
    DATA,
    OWN,
    Place,
    Step,
    check_step,
    in_order,
)
from official_bert.io.errors import InputError
from official_bert.options.fields import flag_fields
from official_bert.options.shared import MaskingOptions

CORPUS, HELD_OUT, PAIRS = "corpus/train*.txt", "corpus/held_out*.txt", "BLiMP.zip"
_POSITIONS, _SEGMENTS = 512, 2
# Flags by which an experiment connects its steps; no declaration sets them.
OWN_FLAGS = {
    "bert_config_file",
    "do_eval",
    "do_predict",
    "do_train",
    "ensemble_dirs",
    "init_checkpoint",
}
OWN_FLAGS |= {"input_file", "model", "output_dir", "output_file", "random_seed", "vocab_file"}
_MASKS = {field.name for field in dataclasses.fields(MaskingOptions)}
# Of run_pretraining.py, where a declaration leaves them out.
_NUM_TRAIN_STEPS, _SAVE_STEPS = 100_000, 1000
# Words in the names of metrics between -1 and 1.
_FRACTIONS = frozenset({"accuracy", "f1", "matthews", "pearson", "precision", "recall", "spearman"})


@dataclasses.dataclass(frozen=True)
class ShownColumn:
    """A column of a table at some scale: its declaration, and the task that is run; None for a
    measure.
    """

    declared: Column
    task: Task | None

    @property
    def label(self) -> str:
        return self.declared.label

    @property
    def stands_in(self) -> bool:
        """Whether the task is not the column's own."""
        return self.task is not None and self.task.name != self.declared.task

    @property
    def heading(self) -> str:
        return f"{self.task.name} for {self.label}" if self.stands_in else self.label

    @property
    def metric(self) -> str:
        """The key of the results that is shown; a task that stands in keeps its own."""
        if self.task is None:
            return self.declared.measure
        return self.task.metric if self.stands_in else self.declared.metric or self.task.metric

    @property
    def factor(self) -> float:
        """What a metric is multiplied by: the fractions among a task's metrics are shown as
        percentages.
        """
        is_fraction = (
            self.task and not self.task.percent and _FRACTIONS.intersection(self.metric.split("_"))
        )
        return 100.0 if is_fraction else 1.0

    @property
    def number(self) -> tuple:
        """What is shown, equal for MNLI-m and MNLI-mm with a task that stands in."""
        return (
            self.task,
            self.metric,
            dataclasses.replace(self.declared, label="", task=None, metric=None),
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """A number of the table, with one seed, counted from 1, and the step whose result it is."""

    row: str
    column: ShownColumn
    seed: int
    step: Step


@dataclasses.dataclass(frozen=True)
class Plan:
    """All cells of an experiment at a scale, with a sentence for each row or column that the
    scale lacks.
    """

    experiment: Experiment
    scale: Scale
    columns: list[ShownColumn]
    rows: list[Row]
    cells: list[Cell]
    left_out: list[str]

    @property
    def steps(self) -> list[Step]:
        """All steps, each once and after those that it needs."""
        return in_order(cell.step for cell in self.cells)


def make_plan(
    experiment: Experiment,
    scale: Scale,
    catalogue: Catalogue,
    encoders: Iterable[str] = (),
    num_seeds: int | None = None,
    training_flags: Mapping[str, str] | None = None,
) -> Plan:
    """Expands an experiment. Rows whose given model is not among `encoders`, or without their first
    task, are left out.

    Without `num_seeds` it is that of the scale.
    """
    columns, left_out = shown_columns(experiment, scale, catalogue.tasks)
    rows = []
    for row in experiment.rows:
        if row.encoder and row.encoder not in encoders:
            left_out.append(
                f"row {row.label!r}: its model is not given; add --model={row.encoder}=FOLDER"
            )
        elif row.label in scale.leaves_out:
            left_out.append(f"row {row.label!r}: --scale={scale.name} does not run it")
        elif row.first_task and row.first_task not in scale.tasks:
            left_out.append(
                f"row {row.label!r}: --scale={scale.name} has no task {row.first_task!r}"
            )
        else:
            rows.append(row)
    if not rows or not columns:
        raise InputError(
            f"{experiment.path}: nothing is left at --scale={scale.name}: {'; '.join(left_out)}"
        )
    planner = _Planner(experiment.path, scale, catalogue, training_flags or {})
    cells = [
        Cell(row.label, column, seed, planner.step(row, column, seed))
        for row in rows
        for column in columns
        for seed in planner.seeds(row, column, num_seeds or scale.seeds)
    ]
    return Plan(experiment, scale, columns, rows, cells, left_out)


def shown_columns(
    experiment: Experiment, scale: Scale, tasks: Mapping[str, Task]
) -> tuple[list[ShownColumn], list[str]]:
    """Returns the columns that the scale has, and a sentence for each one that is left out.

    For a task that the scale lacks its stand-in is run, unless that is the task of another column,
    shown or left out.
    """
    names = [column.task for column in experiment.columns if column.task]
    run = {name: name for name in names if name in scale.tasks}
    for name in names:
        if name not in run and scale.stand_ins.get(name) not in (None, *run.values()):
            run[name] = scale.stand_ins[name]
    columns: list[ShownColumn] = []
    left_out: list[str] = []
    for column in experiment.columns:
        task, stand_in = tasks.get(run.get(column.task)), scale.stand_ins.get(column.task)
        candidate = ShownColumn(column, task)
        if column.label in scale.leaves_out:
            reason = f"--scale={scale.name} does not measure it"
        elif column.task and not task and not stand_in:
            reason = f"--scale={scale.name} has neither its task nor one that stands in for it"
        elif column.task and not task:
            reason = f"what may stand in for its task ({stand_in}) is that of another column"
        elif task and column.set == "test" and not task.test_data:
            reason = f"{task.name} has no test set with labels"
        elif candidate.stands_in and candidate.number in [each.number for each in columns]:
            reason = f"{task.name}, which stands in for its task, is shown already"
        else:
            columns.append(candidate)
            continue
        left_out.append(f"column {column.label!r}: {reason}")
    return columns, left_out


def config_of(size: str, scale: Scale, more: Flags) -> dict[str, Any]:
    """Returns the fields of bert_config.json of one of the paper's sizes at a scale."""
    dimensions = scale.sizes.get(size, size)
    place = f"size {size!r} at --scale={scale.name}"
    if not re.fullmatch(r"\d+/\d+/\d+", dimensions):
        raise InputError(
            f"{place}: is {dimensions!r}, which is not layers/hidden size/heads; correct it"
        )
    layers, hidden, heads = map(int, dimensions.split("/"))
    fields = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}
    fields |= {"intermediate_size": 4 * hidden, "vocab_size": scale.vocabulary["vocab_size"]}
    fields |= (
        {"max_position_embeddings": _POSITIONS, "type_vocab_size": _SEGMENTS} | scale.config | more
    )
    BertConfig.from_dict(fields).validate(place)
    return fields


class _Planner:
    def __init__(self, path: str, scale: Scale, catalogue: Catalogue, training_flags: Flags):
        self._path, self._scale, self._catalogue = path, scale, catalogue
        self._training_flags = training_flags
        defaults = {
            field.name: field.default
            for field in flag_fields(catalog.options_class("run_pretraining"))
        }
        self._usual = [defaults | phase for phase, _ in scale.phases]

    def seeds(self, row: Row, column: ShownColumn, count: int) -> Sequence[int]:
        """Returns the seeds of a cell: an ensemble has one, and a measure one for each
        pre-training.
        """
        count = count if column.task else min(self._scale.pretraining_seeds, count)
        return range(1, 2 if row.ensemble else count + 1)

    def step(self, row: Row, column: ShownColumn, seed: int) -> Step:
        if column.task is None:
            return self._evaluation(row, column, seed)
        if row.ensemble:
            return self._ensemble(row, column)
        step = self._fine_tuning(row, column, seed)
        return self._test(step, column.task) if column.declared.set == "test" else step

    def _make_step(
        self, kind: str, label: str, script: str, flags: Flags, seed=None, config=()
    ) -> Step:
        step = Step(kind, label, script, _frozen(flags), _frozen(dict(config)), seed)
        check_step(step, self._path)
        return step

    def _free(self, declared: Flags, reserved_names: Iterable[str] = OWN_FLAGS) -> Flags:
        """Returns declared flags, none of which connects the steps of the experiment."""
        for name in declared:
            if name in reserved_names:
                raise InputError(f"{self._path}: the experiment sets --{name} itself; remove it")
        return declared

    def _vocabulary(self) -> Place:
        declared = self._free(self._scale.vocabulary, OWN_FLAGS - {"vocab_file"})
        if path := declared.get("vocab_file"):
            return Place(DATA, path)
        flags = {
            "input_file": Place(DATA, CORPUS),
            "output_file": Place(OWN, "vocab.txt"),
            **declared,
        }
        return Place(
            self._make_step("vocabulary", str(flags["vocab_size"]), "build_vocab", flags),
            "vocab.txt",
        )

    def _records(self, text: str, name: str, label: str, more: Flags) -> tuple[Place, Flags]:
        flags = self._free(self._scale.records | more, OWN_FLAGS - {"random_seed"})
        is_sharded = flags.get("generator") == "sharded"
        output_place = Place(OWN, name if is_sharded else f"{name}.tfrecord")
        places = {
            "input_file": Place(DATA, text),
            "output_file": output_place,
            "vocab_file": self._vocabulary(),
        }
        step = self._make_step(
            "records", f"{name} {label}".strip(), "create_pretraining_data", places | flags
        )
        lengths = {
            key: flags[key] for key in ("max_seq_length", "max_predictions_per_seq") if key in flags
        }
        return Place(step, f"{name}-?????-of-?????" if is_sharded else output_place.path), lengths

    def _pretraining(self, row: Row, seed: int) -> list[Step]:
        config = config_of(row.size, self._scale, row.config)
        steps: list[Step] = []
        for number, (phase_flags, record_flags) in enumerate(self._scale.phases, 1):
            row_record_flags, row_flags = self._row_flags(row, phase_flags)
            label = f"{record_flags.get('max_seq_length', '')} {_format_flags(row_record_flags)}"
            records, lengths = self._records(
                CORPUS, "train", label, record_flags | row_record_flags
            )
            flags = {"do_train": True, "input_file": records, "bert_config_file": Place(CONFIG)}
            flags |= {"vocab_file": self._vocabulary(), "output_dir": Place(OWN), **lengths}
            flags |= (
                self._free(phase_flags) | row_flags | {"random_seed": seed} | self._training_flags
            )
            flags |= {"init_checkpoint": Place(steps[-1])} if steps else {}
            phase = f"phase {number}" if len(self._scale.pretraining) > 1 else ""
            label = _words(self._model_label(row), f"seed {seed}", phase)
            steps.append(
                self._make_step("pretraining", label, "run_pretraining", flags, seed, config)
            )
        return steps

    def _model_label(self, row: Row) -> str:
        """Returns what a row's model is, in words that equal models of other rows and
        experiments have, too.
        """
        flags = self._row_flags(row, self._scale.phases[-1][0])
        return row.encoder or _words(
            self._scale.sizes.get(row.size, row.size), *map(_format_flags, (row.config, *flags))
        )

    def _row_flags(self, row: Row, phase_flags: Flags) -> tuple[Flags, Flags]:
        """Returns a row's flags of the records, and those of the training that change something in
        some phase.

        The masks are the training's where it draws them.
        """
        mask_flags = _MASKS if (phase_flags | row.pretraining).get("dynamic_masking") else ()
        record_flags = {
            name: value for name, value in row.records.items() if name not in mask_flags
        }
        training_flags = {
            name: value for name, value in row.records.items() if name in mask_flags
        } | self._free(row.pretraining)
        return record_flags, {
            name: training_flags[name]
            for name in training_flags
            if any(each.get(name) != training_flags[name] for each in self._usual)
        }

    def _model(self, row: Row, column: ShownColumn, seed: int) -> Place:
        """Returns the place of the model that a fine-tuning or an evaluation starts from."""
        if row.encoder:
            return Place(row.encoder)
        phases = self._pretraining(row, (seed - 1) % self._scale.pretraining_seeds + 1)
        return (
            Place(phases[-1]) if column.declared.at is None else self._checkpoint_at(column, phases)
        )

    def _checkpoint_at(self, column: ShownColumn, phases: Sequence[Step]) -> Place:
        counts = [int(phase.flag("num_train_steps", _NUM_TRAIN_STEPS)) for phase in phases]
        update, number = round(column.declared.at * sum(counts)), 0
        while update > counts[number]:
            update -= counts[number]
            number += 1
        phase = phases[number]
        if update == counts[number]:
            return Place(phase)  # a training saves its end
        is_saved = update % int(phase.flag("save_checkpoints_steps", _SAVE_STEPS)) == 0
        if not is_saved or phase.flag("keep_checkpoint_max") != 0:
            raise InputError(
                f"column {column.label!r}: needs the checkpoint of update {update} of phase "
                f"{number + 1}; set keep_checkpoint_max to 0, and save_checkpoints_steps to a "
                f"divisor, in {self._scale.name}.pretraining"
            )
        return Place(phase, f"model.ckpt-{update}")

    def _evaluation(self, row: Row, column: ShownColumn, seed: int) -> Step:
        """Returns the evaluation of a pre-trained model on minimal pairs, or on held-out text
        masked as the paper's.
        """
        model = self._model(row, column, seed)
        label = _words(self._model_label(row), model.path, f"seed {seed}")
        if column.metric == MINIMAL_PAIRS:
            places = {
                "model": model,
                "input_file": Place(DATA, PAIRS),
                "output_file": Place(OWN, f"{MINIMAL_PAIRS}.tsv"),
            }
            flags = places | self._free(self._scale.minimal_pairs)
            return self._make_step("minimal pairs", label, "evaluate_minimal_pairs", flags, seed)
        more = self._scale.phases[-1][1] | self._scale.held_out
        records, lengths = self._records(HELD_OUT, "held_out", "", more)
        flags = {"do_eval": True, "input_file": records, "model": model}
        flags |= {"output_dir": Place(OWN), "eval_batch_size": 32, "max_eval_steps": 0, **lengths}
        flags |= {
            name: value
            for name, value in self._scale.phases[-1][0].items()
            if name == "use_next_sentence"
        }
        flags |= row.pretraining | self._training_flags
        return self._make_step("evaluation", label, "run_pretraining", flags, seed)

    def _recipe(self, task: Task, row: Row) -> Flags:
        """Returns the flags of a fine-tuning, the more special ones over the more general ones."""
        flags = task.flags | self._scale.fine_tuning | self._scale.recipes.get(task.name, {})
        if not row.encoder:
            flags |= self._scale.from_text | self._scale.recipes_from_text.get(task.name, {})
        return (
            self._free(flags | row.fine_tuning, OWN_FLAGS | task.data.keys()) | self._training_flags
        )

    def _fine_tuning(self, row: Row, column: ShownColumn, seed: int) -> Step:
        """Returns the fine-tuning of a cell, after that on the row's first task if it has one."""
        model, after = self._model(row, column, seed), ""
        if row.first_task:
            first = self._trained(self._catalogue.tasks[row.first_task], row, model, seed)
            model, after = self._single(first), f"after {row.first_task}"
        return self._trained(column.task, row, model, seed, after, column.task.evaluation)

    def _trained(self, task: Task, row: Row, model: Place, seed, after="", evaluation=None) -> Step:
        """Returns a fine-tuning of a model; the flag `evaluation` makes it evaluate."""
        flags = {"model": model, "output_dir": Place(OWN), "do_train": True}
        flags |= ({evaluation: True} if evaluation else {}) | _data_places(task.data)
        flags |= self._recipe(task, row) | {"random_seed": seed}
        label = _words(
            task.name,
            self._model_label(row),
            model.path,
            after,
            _format_flags(row.fine_tuning),
            f"seed {seed}",
        )
        return self._make_step("fine-tuning", label, task.script, flags, seed)

    def _single(self, trained: Step) -> Place:
        if trained.flag("search", ""):
            raise InputError(
                f"{self._path}: {trained.label} is a search, which leaves several models; give it "
                "no search"
            )
        return Place(trained)

    def _test(self, trained: Step, task: Task) -> Step:
        flags = _without_training(trained) | {"model": self._single(trained), task.evaluation: True}
        flags |= _data_places(task.test_data)
        return self._make_step("test", trained.label, task.script, flags, trained.seed)

    def _ensemble(self, row: Row, column: ShownColumn) -> Step:
        """Returns the mean of the predictions of fine-tunings with the seeds from 1."""
        count = min(row.ensemble, self._scale.ensemble or row.ensemble)
        members = [self._fine_tuning(row, column, seed) for seed in range(1, count + 1)]
        places = {
            "model": self._model(row, column, 1),
            "ensemble_dirs": tuple(map(self._single, members)),
        }
        flags = _without_training(members[0]) | places
        return self._make_step(
            "ensemble", f"{members[0].label} to {count}", column.task.script, flags
        )


def _data_places(paths: Mapping[str, str]) -> dict[str, Place]:
    return {name: Place(DATA, path) for name, path in paths.items()}


def _without_training(step: Step) -> dict[str, Any]:
    return {name: value for name, value in step.flags if name not in ("do_train", "random_seed")}


def _words(*parts: str) -> str:
    return " ".join(filter(None, parts))


def _format_flags(flags: Flags) -> str:
    return " ".join(f"{name}={value}" for name, value in flags.items())


def _frozen(flags: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Returns flags or fields as a value; a list of TOML becomes one with commas."""
    return tuple(
        (name, tuple(value) if isinstance(value, list) else value) for name, value in flags.items()
    )
