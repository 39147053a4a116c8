"""The plan of an experiment at a scale: the cells of its table, and the steps that fill them.

In: declarations. Out: for each cell the step whose result it shows, with all steps that it needs. Steps are values, so
that two rows with equal steps share them. Nothing is read but the declarations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from official_bert.config import BertConfig
from official_bert.errors import InputError
from official_bert.jobs.experiments.columns import ShownColumn, shown_columns
from official_bert.jobs.experiments.definitions import (
    Catalogue,
    Experiment,
    Flags,
    Row,
    Scale,
    Task,
)
from official_bert.jobs.experiments.steps import Config, Given, Output, Own, Step, Work, in_order

CORPUS, HELD_OUT = "corpus/train*.txt", "corpus/held_out*.txt"
BASE, LARGE = "base", "large"
PAPER_SIZES = {BASE: "12/768/12", LARGE: "24/1024/16"}
LEFT_TO_RIGHT = {"attention_direction": "left_to_right"}
_POSITIONS, _SEGMENTS = 512, 2
_LENGTHS = {"run_squad": 384}  # the scripts' own --max_seq_length; the others have 128


@dataclasses.dataclass(frozen=True)
class Cell:
    """A number of the table, with one seed.

    Attributes:
        row: the label of the row.
        column: the column.
        seed: counted from 1.
        step: the step whose result it is.
    """

    row: str
    column: ShownColumn
    seed: int
    step: Step


@dataclasses.dataclass(frozen=True)
class Plan:
    """All cells of an experiment at a scale.

    Attributes:
        experiment: the declaration.
        scale: the scale.
        columns, rows: those that the scale has.
        cells: all cells.
        left_out: a sentence for each row or column that the scale lacks.
        num_steps: the updates of the first phase of a pre-training.
    """

    experiment: Experiment
    scale: Scale
    columns: tuple[ShownColumn, ...]
    rows: tuple[Row, ...]
    cells: tuple[Cell, ...]
    left_out: tuple[str, ...]

    @property
    def steps(self) -> list[Step]:
        """All steps, each once and after those that it needs."""
        return in_order(cell.step for cell in self.cells)

    @property
    def num_steps(self) -> int:
        return int(self.scale.phases[0].flags.get("num_train_steps", 0))


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the user chooses beside the experiment and the scale.

    Attributes:
        seeds: the number of fine-tunings of a cell; None for that of the scale.
        encoders: the configurations of given models by their names.
        training_flags: flags of all trainings, for the devices.
        is_present: tells whether the data of a task are there.
    """

    seeds: int | None = None
    encoders: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    training_flags: Flags = dataclasses.field(default_factory=dict)
    is_present: Callable[[Task], bool] = lambda task: True


def make_plan(experiment: Experiment, scale: Scale, catalogue: Catalogue, settings: Settings) -> Plan:
    """Expands an experiment.

    Rows whose given model the user did not name, or whose first task the scale lacks, are left out.

    Raises:
        InputError: no row or no column is left, or a size cannot be read.
    """
    columns = shown_columns(experiment, scale, catalogue, settings.is_present)
    shown = {column.label for column in columns}
    left_out = [
        f"column {column.label!r}: --scale={scale.name} has neither its task nor one that stands in for it"
        for column in experiment.columns
        if column.label not in shown
    ]
    rows = []
    for row in experiment.rows:
        if row.encoder and row.encoder not in settings.encoders:
            left_out.append(f"row {row.label!r}: its model is not given; add --encoder={row.encoder}=FOLDER")
        elif row.first_task and row.first_task not in scale.tasks:
            left_out.append(f"row {row.label!r}: --scale={scale.name} has no task {row.first_task!r}")
        else:
            rows.append(row)
    if not rows:
        names = " and ".join(dict.fromkeys(row.encoder for row in experiment.rows if row.encoder))
        raise InputError(
            f"{experiment.path}: only fine-tunes models that are given ({names}), and --encoder names none of them; "
            "add --encoder=FOLDER, or --encoder=base=FOLDER,large=FOLDER"
        )
    planner = _Planner(scale, catalogue, settings)
    cells = [
        Cell(row.label, column, seed, planner.step(row, column, seed))
        for row in rows
        for column in columns
        for seed in planner.seeds(row, column)
    ]
    return Plan(experiment, scale, tuple(columns), tuple(rows), tuple(cells), tuple(left_out))


def config_of(size: str, scale: Scale, more: Flags) -> dict[str, Any]:
    """Returns the fields of bert_config.json of one of the paper's sizes at a scale.

    Raises:
        InputError: the size is not of the form layers/hidden size/heads, or no model can have it.
    """
    own = scale.sizes.get(size, size)
    try:
        layers, hidden, heads = map(int, own.split("/"))
    except ValueError:
        raise InputError(
            f"size {size!r}: at --scale={scale.name} it is {own!r}, which is not layers/hidden size/heads; correct it"
        ) from None
    fields = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        "vocab_size": scale.vocabulary["vocab_size"],
        "max_position_embeddings": _POSITIONS,
        "type_vocab_size": _SEGMENTS,
    }
    fields |= scale.config | more
    BertConfig.from_dict(fields).validate(f"size {size!r} at --scale={scale.name}")
    return fields


class _Planner:
    """Makes the steps of cells."""

    def __init__(self, scale: Scale, catalogue: Catalogue, settings: Settings):
        self._scale, self._catalogue, self._settings = scale, catalogue, settings
        self._num_seeds = settings.seeds or scale.seeds

    def seeds(self, row: Row, column: ShownColumn) -> Sequence[int]:
        """Returns the seeds of a cell: an ensemble has one, and a measure one for each pre-training."""
        if row.ensemble:
            return (1,)
        count = (
            min(self._scale.pretraining_seeds, self._num_seeds) if column.task is None else self._num_seeds
        )
        return range(1, count + 1)

    def step(self, row: Row, column: ShownColumn, seed: int) -> Step:
        """Returns the step whose result is shown in a cell."""
        if column.task is None:
            return self._evaluation(row, column, seed)
        if row.ensemble:
            return self._ensemble(row, column)
        step = self._fine_tuning(row, column, seed)
        return self._test(step, row, column) if column.column.set == "test" else step

    def _vocabulary(self) -> Given | Output:
        """Returns the place of the vocabulary."""
        if path := self._scale.vocabulary.get("vocab_file"):
            return Given(path)
        flags = {"input_file": Given(CORPUS), "output_file": Own("vocab.txt"), **self._scale.vocabulary}
        return Output(
            Step("vocabulary", str(flags["vocab_size"]), "build_vocab", _frozen(flags)), "vocab.txt"
        )

    def _records(self, text: str, name: str, label: str, more: Flags) -> tuple[Output, Flags]:
        """Returns the place of records, and the flags of their lengths."""
        flags = self._scale.records | more
        is_sharded = flags.get("generator") == "sharded"
        places = {
            "input_file": Given(text),
            "output_file": Own(name if is_sharded else f"{name}.tfrecord"),
            "vocab_file": self._vocabulary(),
        }
        step = Step("records", f"{name} {label}".strip(), "create_pretraining_data", _frozen(places | flags))
        lengths = {key: flags[key] for key in ("max_seq_length", "max_predictions_per_seq") if key in flags}
        return Output(step, f"{name}-?????-of-?????" if is_sharded else f"{name}.tfrecord"), lengths

    def _pretraining(self, row: Row, seed: int) -> list[Step]:
        """Returns a step for each phase of a row's pre-training."""
        config = config_of(row.size, self._scale, row.config)
        made: list[Step] = []
        for number, phase in enumerate(self._scale.phases, 1):
            length = str(phase.records.get("max_seq_length", ""))
            rates = " ".join(f"{name} {value}" for name, value in row.records.items())
            records, lengths = self._records(
                CORPUS, "train", f"{length} {rates}", phase.records | row.records
            )
            flags = {
                "do_train": True,
                "input_file": records,
                "bert_config_file": Config(),
                "vocab_file": self._vocabulary(),
                "output_dir": Own(),
                **lengths,
                **phase.flags,
                **row.pretraining,
                "random_seed": seed,
                **self._settings.training_flags,
            }
            if made:
                flags["init_checkpoint"] = Output(made[-1])
            work = self._pretraining_work(config, flags, phase.flags)
            label = f"{self._model_label(row)} seed {seed}"
            if len(self._scale.phases) > 1:
                label += f" phase {number}"
            made.append(
                Step("pretraining", label, "run_pretraining", _frozen(flags), _frozen(config), seed, work)
            )
        return made

    def _model_label(self, row: Row) -> str:
        """Returns what a row's model is, in words that equal models of other rows and experiments have, too."""
        if row.encoder:
            return row.encoder
        size = self._scale.sizes.get(row.size, row.size)
        return " ".join(filter(None, (size, _told(row.config), _told(row.records), _told(row.pretraining))))

    def _pretraining_work(self, config: Flags, flags: Flags, phase: Flags) -> Work:
        length = flags.get("max_seq_length", 128)
        is_left_to_right = LEFT_TO_RIGHT.items() <= config.items()
        return Work(
            _frozen(config),
            length,
            num_trained=phase.get("train_batch_size", 32) * phase.get("num_train_steps", 100000),
            num_predictions=length - 1 if is_left_to_right else flags.get("max_predictions_per_seq", 20),
        )

    def _model(self, row: Row, column: ShownColumn, seed: int) -> Given | Output:
        """Returns the place of the model that a fine-tuning or an evaluation starts from."""
        if row.encoder:
            return Given("", row.encoder)
        phases = self._pretraining(row, (seed - 1) % self._scale.pretraining_seeds + 1)
        share = column.column.at
        if share is None or share == 1:
            return Output(phases[-1])
        num_updates = round(share * phases[0].flag("num_train_steps"))
        if num_updates % phases[0].flag("save_checkpoints_steps", 1000):
            raise InputError(
                f"column {column.label!r}: at {share:g} of the updates is update {num_updates}, which is no multiple "
                f"of save_checkpoints_steps in [[{self._scale.name}.pretraining]]; change one of them"
            )
        return Output(phases[0], f"model.ckpt-{num_updates}")

    def _evaluation(self, row: Row, column: ShownColumn, seed: int) -> Step:
        """Returns the evaluation of a pre-trained model on held-out text, with the masks of the paper."""
        records, lengths = self._records(
            HELD_OUT, "held_out", "", self._scale.phases[-1].records | self._scale.held_out
        )
        flags = {
            "do_eval": True,
            "input_file": records,
            "model": self._model(row, column, seed),
            "output_dir": Own(),
            "eval_batch_size": 32,
            "max_eval_steps": 0,
            **lengths,
            **row.pretraining,
            **self._settings.training_flags,
        }
        return Step(
            "evaluation",
            f"{self._model_label(row)} seed {seed}",
            "run_pretraining",
            _frozen(flags),
            seed=seed,
        )

    def _recipe(self, task: Task, row: Row, more: Flags) -> Flags:
        """Returns the flags of a fine-tuning, the more special ones over the more general ones."""
        flags = task.flags | self._scale.fine_tuning | self._scale.recipes.get(task.name, {})
        if not row.encoder:
            flags |= self._scale.from_text | self._scale.recipes_from_text.get(task.name, {})
        for table in (self._catalogue.with_flag, self._scale.with_flag):
            for name in more:
                flags |= table.get(name, {})
        return flags | more | self._settings.training_flags

    def _fine_tuning(self, row: Row, column: ShownColumn, seed: int) -> Step:
        """Returns the fine-tuning of a cell, after that on the row's first task if it has one."""
        model = self._model(row, column, seed)
        if row.first_task:
            first = self._catalogue.tasks[row.first_task]
            model = Output(self._trained(first, row, {}, model, seed, is_evaluated=False))
        return self._trained(column.task, row, column.column.fine_tuning, model, seed)

    def _trained(
        self,
        task: Task,
        row: Row,
        of_column: Flags,
        model: Given | Output,
        seed: int,
        is_evaluated: bool = True,
    ) -> Step:
        flags = {"model": model, "output_dir": Own(), "do_train": True}
        if is_evaluated:
            flags[task.evaluation] = True
        flags |= {name: Given(path) for name, path in task.data.items()}
        if task.preparation:
            made = task.preparation
            places = {name: Given(path) for name, path in made.data.items()} | {
                "output_file": Own(made.output)
            }
            step = Step("data", task.name, made.script, _frozen(places))
            flags[made.flag] = Output(step, made.output)
        recipe = self._recipe(task, row, of_column | row.fine_tuning)
        flags |= recipe | {"random_seed": seed}
        work = self._fine_tuning_work(task, row, recipe, is_evaluated)
        checkpoint = model.path if isinstance(model, Output) else ""
        after = f"after {row.first_task}" if row.first_task and is_evaluated else ""
        parts = (task.name, self._model_label(row), checkpoint, after, _told(of_column | row.fine_tuning))
        label = " ".join(filter(None, (*parts, f"seed {seed}")))
        return Step("fine-tuning", label, task.script, _frozen(flags), (), seed, work)

    def _fine_tuning_work(self, task: Task, row: Row, recipe: Flags, is_evaluated: bool) -> Work:
        if row.encoder:
            config = dict(self._settings.encoders[row.encoder])
        else:
            config = config_of(row.size, self._scale, row.config)
        passes = float(recipe.get("num_train_epochs", 3.0))
        num_trials = 1
        if recipe.get("search"):
            epochs = [float(value) for value in str(recipe.get("search_epochs", "2,3,4")).split(",")]
            others = (
                recipe.get("search_batch_sizes", "16,32"),
                recipe.get("search_learning_rates", "5e-5,3e-5,2e-5"),
            )
            num_trials = len(epochs)
            for values in others:
                num_trials *= len(str(values).split(","))
            passes = sum(epochs) / len(epochs)
        trained, evaluated = task.examples
        return Work(
            _frozen(config),
            int(recipe.get("max_seq_length", _LENGTHS.get(task.script, 128))),
            num_trained=round(num_trials * passes * trained * task.sequences),
            num_evaluated=num_trials * evaluated * task.sequences * is_evaluated,
            num_frozen_layers=config["num_hidden_layers"] if recipe.get("feature_layers") else 0,
        )

    def _test(self, trained: Step, row: Row, column: ShownColumn) -> Step:
        """Returns the evaluation of a fine-tuned model on the test set."""
        task = column.task
        flags = {name: value for name, value in trained.flags if name not in ("do_train", "random_seed")}
        flags |= {"model": Output(trained), task.evaluation: True}
        flags |= {name: Given(path) for name, path in task.test_data.items()}
        return Step(
            "test",
            trained.label,
            task.script,
            _frozen(flags),
            seed=trained.seed,
        )

    def _ensemble(self, row: Row, column: ShownColumn) -> Step:
        """Returns the mean of the predictions of fine-tunings with the seeds from 1."""
        count = min(row.ensemble, self._scale.ensemble or row.ensemble)
        members = [self._fine_tuning(row, column, seed) for seed in range(1, count + 1)]
        task = column.task
        flags = {name: value for name, value in members[0].flags if name not in ("do_train", "random_seed")}
        flags |= {"model": self._model(row, column, 1), "ensemble_dirs": tuple(map(Output, members))}
        label = f"{members[0].label} to {count}"
        return Step("ensemble", label, task.script, _frozen(flags))


def _told(flags: Flags) -> str:
    return " ".join(f"{name}={value}" for name, value in flags.items())


def _frozen(flags: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Returns flags or fields as a value; a list of TOML becomes one with commas.

    Raises:
        InputError: a value is a table.
    """
    for name, value in flags.items():
        if isinstance(value, dict):
            raise InputError(
                f"{name}: is a table, {value!r}; write a text, a number, true, false or a list of them"
            )
    return tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in flags.items())
