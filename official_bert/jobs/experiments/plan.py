"""The plan of an experiment at a scale: the cells of its table, and the steps that fill them.

In: declarations. Out: for each cell the step whose result it shows, with all steps that it needs. Steps are values, so
that two rows with equal steps share them. Nothing is read but the declarations.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from official_bert.config import BertConfig
from official_bert.io.errors import InputError
from official_bert.jobs.experiments.columns import ShownColumn, shown_columns
from official_bert.jobs.experiments.definitions import (
    Catalogue,
    Experiment,
    Flags,
    Row,
    Scale,
    Task,
)
from official_bert.jobs.experiments.scripts import OWN_FLAGS, check_step
from official_bert.jobs.experiments.steps import Config, Given, Output, Own, Step, Work, in_order
from official_bert.jobs.experiments.work import NUM_TRAIN_STEPS, fine_tuning_work, pretraining_work

CORPUS, HELD_OUT = "corpus/train*.txt", "corpus/held_out*.txt"
BASE, LARGE = "base", "large"
PAPER_SIZES = {BASE: "12/768/12", LARGE: "24/1024/16"}
_POSITIONS, _SEGMENTS = 512, 2
_SAVE_STEPS, _KEPT_CHECKPOINTS = 1000, 5  # of run_pretraining.py, where a declaration leaves them out


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
        num_steps: the updates of a pre-training, all phases together.
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
        return sum(int(phase.flags.get("num_train_steps", NUM_TRAIN_STEPS)) for phase in self.scale.phases)


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
        InputError: no row or no column is left, a size cannot be read, or a script would refuse a flag.
    """
    columns, left_out = shown_columns(experiment, scale, catalogue, settings.is_present)
    rows = []
    for row in experiment.rows:
        if row.encoder and row.encoder not in settings.encoders:
            left_out.append(f"row {row.label!r}: its model is not given; add --encoder={row.encoder}=FOLDER")
        elif row.first_task and row.first_task not in scale.tasks:
            left_out.append(f"row {row.label!r}: --scale={scale.name} has no task {row.first_task!r}")
        else:
            rows.append(row)
    names = " and ".join(dict.fromkeys(row.encoder for row in experiment.rows if row.encoder))
    if not rows and not names:
        raise InputError(
            f"{experiment.path}: has nothing to train at --scale={scale.name} ({'; '.join(left_out)}); choose another "
            "scale"
        )
    if not rows:
        raise InputError(
            f"{experiment.path}: only fine-tunes models that are given ({names}), and --encoder names none of them; "
            "add --encoder=FOLDER, or --encoder=base=FOLDER,large=FOLDER"
        )
    planner = _Planner(experiment, scale, catalogue, settings)
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

    def __init__(self, experiment: Experiment, scale: Scale, catalogue: Catalogue, settings: Settings):
        self._path = experiment.path
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

    def _made(
        self,
        kind: str,
        label: str,
        script: str,
        flags: Flags,
        config: Flags | None = None,
        seed: int | None = None,
        work: Callable[[], Work] | None = None,
    ) -> Step:
        """Returns a step whose flags its script takes.

        Args:
            kind, label, script, flags, config, seed: of the step.
            work: makes the work of the step, from flags that are checked.

        Raises:
            InputError: the script would refuse a flag.
        """
        step = Step(kind, label, script, _frozen(flags), _frozen(config or {}), seed)
        check_step(step, self._path)
        return dataclasses.replace(step, work=work()) if work else step

    def _check_free(self, declared: Iterable[str], own: Iterable[str] = OWN_FLAGS):
        """Refuses declared flags by which the experiment connects its steps."""
        for name in declared:
            if name in own:
                raise InputError(
                    f"{self._path}, or the scale or the task that it uses: the experiment sets --{name} itself; remove "
                    "it"
                )

    def _vocabulary(self) -> Given | Output:
        """Returns the place of the vocabulary."""
        if path := self._scale.vocabulary.get("vocab_file"):
            return Given(path)
        self._check_free(self._scale.vocabulary)
        flags = {"input_file": Given(CORPUS), "output_file": Own("vocab.txt"), **self._scale.vocabulary}
        return Output(self._made("vocabulary", str(flags["vocab_size"]), "build_vocab", flags), "vocab.txt")

    def _records(self, text: str, name: str, label: str, more: Flags) -> tuple[Output, Flags]:
        """Returns the place of records, and the flags of their lengths."""
        flags = self._scale.records | more
        self._check_free(flags, OWN_FLAGS - {"random_seed"})
        is_sharded = flags.get("generator") == "sharded"
        places = {
            "input_file": Given(text),
            "output_file": Own(name if is_sharded else f"{name}.tfrecord"),
            "vocab_file": self._vocabulary(),
        }
        step = self._made("records", f"{name} {label}".strip(), "create_pretraining_data", places | flags)
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
            self._check_free((*phase.flags, *row.pretraining))
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
            label = f"{self._model_label(row)} seed {seed}"
            if len(self._scale.phases) > 1:
                label += f" phase {number}"
            work = functools.partial(pretraining_work, config, flags)
            made.append(self._made("pretraining", label, "run_pretraining", flags, config, seed, work))
        return made

    def _model_label(self, row: Row) -> str:
        """Returns what a row's model is, in words that equal models of other rows and experiments have, too."""
        if row.encoder:
            return row.encoder
        size = self._scale.sizes.get(row.size, row.size)
        return " ".join(filter(None, (size, _told(row.config), _told(row.records), _told(row.pretraining))))

    def _model(self, row: Row, column: ShownColumn, seed: int) -> Given | Output:
        """Returns the place of the model that a fine-tuning or an evaluation starts from."""
        if row.encoder:
            return Given("", row.encoder)
        phases = self._pretraining(row, (seed - 1) % self._scale.pretraining_seeds + 1)
        share = column.column.at
        return Output(phases[-1]) if share is None else self._checkpoint_at(share, phases, column)

    def _checkpoint_at(self, share: float, phases: Sequence[Step], column: ShownColumn) -> Output:
        """Returns the checkpoint after a share of the updates of all phases."""
        counts = [int(phase.flag("num_train_steps", NUM_TRAIN_STEPS)) for phase in phases]
        wanted = round(share * sum(counts))
        number = 0
        while wanted > counts[number]:
            wanted -= counts[number]
            number += 1
        phase = phases[number]
        if wanted == counts[number]:
            return Output(phase)  # a training saves its end
        place = f"[[{self._scale.name}.pretraining]], number {number + 1}"
        if wanted % int(phase.flag("save_checkpoints_steps", _SAVE_STEPS)):
            raise InputError(
                f"column {column.label!r}: at {share:g} of all updates is update {wanted} of its phase, which is no "
                f"multiple of save_checkpoints_steps in {place}; change one of them"
            )
        if int(phase.flag("keep_checkpoint_max", _KEPT_CHECKPOINTS)):
            raise InputError(
                f"column {column.label!r}: needs the checkpoint of update {wanted}, and keep_checkpoint_max in {place} "
                "lets it be deleted; set it to 0"
            )
        return Output(phase, f"model.ckpt-{wanted}")

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
        label = f"{self._model_label(row)} seed {seed}"
        return self._made("evaluation", label, "run_pretraining", flags, seed=seed)

    def _recipe(self, task: Task, row: Row, more: Flags) -> Flags:
        """Returns the flags of a fine-tuning, the more special ones over the more general ones."""
        flags = task.flags | self._scale.fine_tuning | self._scale.recipes.get(task.name, {})
        if not row.encoder:
            flags |= self._scale.from_text | self._scale.recipes_from_text.get(task.name, {})
        for table in (self._catalogue.with_flag, self._scale.with_flag):
            for name in more:
                flags |= table.get(name, {})
        flags |= more
        self._check_free(flags, OWN_FLAGS | task.data.keys())
        return flags | self._settings.training_flags

    def _fine_tuning(self, row: Row, column: ShownColumn, seed: int) -> Step:
        """Returns the fine-tuning of a cell, after that on the row's first task if it has one."""
        model = self._model(row, column, seed)
        if row.first_task:
            first = self._catalogue.tasks[row.first_task]
            model = self._single(self._trained(first, row, {}, model, seed, is_evaluated=False))
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
            step = self._made("data", task.name, made.script, places)
            flags[made.flag] = Output(step, made.output)
        recipe = self._recipe(task, row, of_column | row.fine_tuning)
        flags |= recipe | {"random_seed": seed}
        given = self._settings.encoders[row.encoder] if row.encoder else None
        config = given or config_of(row.size, self._scale, row.config)
        work = functools.partial(fine_tuning_work, config, task, recipe, is_evaluated, self._path)
        checkpoint = model.path if isinstance(model, Output) else ""
        after = f"after {row.first_task}" if row.first_task and is_evaluated else ""
        parts = (task.name, self._model_label(row), checkpoint, after, _told(of_column | row.fine_tuning))
        label = " ".join(filter(None, (*parts, f"seed {seed}")))
        return self._made("fine-tuning", label, task.script, flags, None, seed, work)

    def _single(self, trained: Step) -> Output:
        """Returns the place of a fine-tuned model.

        Raises:
            InputError: the fine-tuning is a search, which leaves several.
        """
        if trained.flag("search", ""):
            raise InputError(
                f"{self._path}: {trained.label} is a search at --scale={self._scale.name}, which leaves a model for "
                "each trial, so that nothing else can start from it; give it no search"
            )
        return Output(trained)

    def _test(self, trained: Step, row: Row, column: ShownColumn) -> Step:
        """Returns the evaluation of a fine-tuned model on the test set."""
        task = column.task
        flags = {name: value for name, value in trained.flags if name not in ("do_train", "random_seed")}
        flags |= {"model": self._single(trained), task.evaluation: True}
        flags |= {name: Given(path) for name, path in task.test_data.items()}
        return self._made("test", trained.label, task.script, flags, seed=trained.seed)

    def _ensemble(self, row: Row, column: ShownColumn) -> Step:
        """Returns the mean of the predictions of fine-tunings with the seeds from 1."""
        count = min(row.ensemble, self._scale.ensemble or row.ensemble)
        members = [self._fine_tuning(row, column, seed) for seed in range(1, count + 1)]
        task = column.task
        flags = {name: value for name, value in members[0].flags if name not in ("do_train", "random_seed")}
        flags |= {"model": self._model(row, column, 1), "ensemble_dirs": tuple(map(self._single, members))}
        label = f"{members[0].label} to {count}"
        return self._made("ensemble", label, task.script, flags)


def _told(flags: Flags) -> str:
    return " ".join(f"{name}={value}" for name, value in flags.items())


def _frozen(flags: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Returns flags or fields as a value; a list of TOML becomes one with commas."""
    return tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in flags.items())
