"""The steps of the cells of an experiment: pre-trainings, evaluations and fine-tunings.

Input: declarations. Output: for each cell the step with its result, and all steps before it.
Steps are values, so that two rows with equal steps share them.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from official_bert import catalog
from official_bert.config import BertConfig
from official_bert.extensions.experiments.columns import ShownColumn
from official_bert.extensions.experiments.declarations import (
    MINIMAL_PAIRS,
    Catalogue,
    Flags,
    Row,
    Scale,
    Task,
)
from official_bert.extensions.experiments.steps import (
    CONFIG,
    DATA,
    OUTPUT,
    Place,
    Step,
    check_step,
)
from official_bert.io.errors import InputError
from official_bert.options.fields import flag_fields
from official_bert.options.shared import MaskingOptions

# The paths of texts and minimal pairs below the user's folder of data.
CORPUS = "corpus/train*.txt"
HELD_OUT = "corpus/held_out*.txt"
PAIRS = "BLiMP.zip"
# The fields of all configurations that a declaration does not change.
_POSITIONS = 512
_SEGMENTS = 2
_FINE_TUNING = "fine-tuning"  # the kind of steps that fine-tune
# An experiment connects its steps by these flags; no declaration sets them.
RESERVED_FLAGS = {
    "bert_config_file",
    "do_eval",
    "do_predict",
    "do_train",
    "ensemble_dirs",
    "init_checkpoint",
    "input_file",
    "model",
    "output_dir",
    "output_file",
    "random_seed",
    "vocab_file",
}
_MASKING_FLAGS = {field.name for field in dataclasses.fields(MaskingOptions)}
# The defaults of run_pretraining.py, which count if a declaration leaves them out.
_NUM_TRAIN_STEPS = 100_000
_SAVE_STEPS = 1000
_STOP_FLAG = "stop_at_step"


def make_config(size: str, scale: Scale, more_fields: Flags) -> dict[str, Any]:
    """Return the fields of bert_config.json.

    Args:
        size: one of the paper's sizes, as layers/hidden size/heads.
        scale: the scale, which may replace the size by a smaller one.
        more_fields: fields with precedence over all others.

    Returns:
        The fields by name.

    Raises:
        InputError: the size has another form, or the fields make no model.
    """
    dimensions = scale.sizes.get(size, size)
    place = f"size {size!r} at --scale={scale.name}"
    if not re.fullmatch(r"\d+/\d+/\d+", dimensions):
        raise InputError(
            f"{place}: is {dimensions!r}, which is not layers/hidden size/heads; correct it"
        )
    num_layers, hidden_size, num_heads = map(int, dimensions.split("/"))
    fields = {
        "num_hidden_layers": num_layers,
        "hidden_size": hidden_size,
        "num_attention_heads": num_heads,
        "intermediate_size": 4 * hidden_size,
        "vocab_size": scale.vocabulary["vocab_size"],
        "max_position_embeddings": _POSITIONS,
        "type_vocab_size": _SEGMENTS,
        **scale.config,
        **more_fields,
    }
    BertConfig.from_dict(fields).validate(place)
    return fields


def is_numbered(name: str, base: str) -> bool:
    """Returns whether a model has the name of another one with a number, such as large2 of large.

    Args:
        name: the name of the model.
        base: the name of the other one.
    """
    return name.startswith(base) and name[len(base) :].isdecimal()


class Planner:
    """Plans the steps of the cells of one experiment at one scale."""

    def __init__(
        self,
        path: str,
        scale: Scale,
        catalogue: Catalogue,
        training_flags: Mapping[str, str],
        encoders: Iterable[str] = (),
    ):
        """Creates a planner.

        Args:
            path: the file of the experiment, for error messages.
            scale: the sizes of its models and data.
            catalogue: the tasks.
            training_flags: further flags of all trainings.
            encoders: the names of the user's models.
        """
        self._path = path
        self._scale = scale
        self._catalogue = catalogue
        self._training_flags = dict(training_flags)
        self._encoders = sorted(encoders)
        fields = flag_fields(catalog.options_class("run_pretraining"))
        defaults = {field.name: field.default for field in fields}
        self._phase_values = [defaults | phase for phase, _ in scale.phases]

    def seeds(self, row: Row, column: ShownColumn, count: int) -> Sequence[int]:
        """Returns the seeds of a cell: an ensemble has one, a measure one for each pre-training.

        Args:
            row: the row of the cell.
            column: the column of the cell.
            count: the number of seeds of a fine-tuning, and the largest number of a measure.

        Returns:
            The numbers from 1.
        """
        if row.ensemble:
            return range(1, 2)
        if column.task is None:
            count = min(self._scale.pretraining_seeds, count)
        return range(1, count + 1)

    def plan_step(self, row: Row, column: ShownColumn, seed: int) -> Step:
        """Returns the step with the result of a cell.

        Args:
            row: the row of the cell.
            column: the column of the cell.
            seed: one of `seeds`; an ensemble ignores it.

        Raises:
            InputError: a flag of the experiment or its scale cannot be used, or the cell needs a
                checkpoint that no step saves.
        """
        if column.task is None:
            return self._plan_evaluation(row, column, seed)
        if row.ensemble:
            return self._plan_ensemble(row, column, column.task, row.ensemble)
        step = self._plan_fine_tuning(row, column, column.task, seed)
        if column.declared.set == "test":
            return self._plan_test(step, column.task)
        return step

    def _make_step(
        self,
        kind: str,
        label: str,
        script: str,
        flags: Mapping[str, Any],
        *,
        seed: int | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Step:
        step = Step(kind, label, script, _freeze(flags), _freeze(config or {}), seed)
        check_step(step, self._path)
        return step

    def _check_reserved(self, flags: Flags, reserved_names: Iterable[str] = RESERVED_FLAGS):
        """Rejects flags of a declaration that connect the steps of the experiment."""
        for name in flags:
            if name in reserved_names:
                raise InputError(f"{self._path}: the experiment sets --{name} itself; remove it")

    def _plan_vocabulary(self) -> Place:
        declared_flags = self._scale.vocabulary
        self._check_reserved(declared_flags, RESERVED_FLAGS - {"vocab_file"})
        path = declared_flags.get("vocab_file")
        if path:
            return Place(DATA, str(path))
        flags = {
            "input_file": Place(DATA, CORPUS),
            "output_file": Place(OUTPUT, "vocab.txt"),
            **declared_flags,
        }
        step = self._make_step("vocabulary", str(flags["vocab_size"]), "build_vocab", flags)
        return Place(step, "vocab.txt")

    def _plan_records(
        self, text: str, name: str, label: str, more_flags: Flags
    ) -> tuple[Place, Flags]:
        """Returns the place of the records of a text, and those of their flags that set lengths."""
        declared_flags = self._scale.records | more_flags
        self._check_reserved(declared_flags, RESERVED_FLAGS - {"random_seed"})
        is_sharded = declared_flags.get("generator") == "sharded"
        output_name = name if is_sharded else f"{name}.tfrecord"
        flags = {
            "input_file": Place(DATA, text),
            "output_file": Place(OUTPUT, output_name),
            "vocab_file": self._plan_vocabulary(),
            **declared_flags,
        }
        label = f"{name} {label}".strip()
        step = self._make_step("records", label, "create_pretraining_data", flags)
        length_names = ("max_seq_length", "max_predictions_per_seq")
        lengths = {key: declared_flags[key] for key in length_names if key in declared_flags}
        pattern = f"{name}-?????-of-?????" if is_sharded else output_name
        return Place(step, pattern), lengths

    def _plan_pretraining(self, row: Row, seed: int) -> list[Step]:
        """Returns the phases of a pre-training, each from the model of the one before.

        A phase with `stop_at_step` ends before its schedule does, and the next one resumes it.
        """
        assert row.size is not None  # Rows have an encoder or a size.
        config = make_config(row.size, self._scale, row.config)
        steps: list[Step] = []
        for number, (phase_flags, record_flags) in enumerate(self._scale.phases, 1):
            row_record_flags, row_flags = self._split_row_flags(row, phase_flags)
            seq_length = record_flags.get("max_seq_length", "")
            records, lengths = self._plan_records(
                CORPUS,
                "train",
                f"{seq_length} {_format_flags(row_record_flags)}",
                record_flags | row_record_flags,
            )
            self._check_reserved(phase_flags)
            flags = {
                "do_train": True,
                "input_file": records,
                "bert_config_file": Place(CONFIG),
                "vocab_file": self._plan_vocabulary(),
                "output_dir": Place(OUTPUT),
                **lengths,
            }
            flags |= phase_flags | row_flags | {"random_seed": seed} | self._training_flags
            continued = None
            if steps and steps[-1].flag(_STOP_FLAG) is not None:
                continued = Place(steps[-1], f"model.ckpt-{steps[-1].flag(_STOP_FLAG)}")
            elif steps:
                flags["init_checkpoint"] = Place(steps[-1])
            phase = f"phase {number}" if len(self._scale.pretraining) > 1 else ""
            label = _join_words(self._model_label(row), f"seed {seed}", phase)
            step = self._make_step(
                "pretraining", label, "run_pretraining", flags, seed=seed, config=config
            )
            steps.append(dataclasses.replace(step, continued=continued))
        return steps

    def _model_label(self, row: Row) -> str:
        """Returns a row's model in words, equal for equal models of other rows and experiments."""
        record_flags, training_flags = self._split_row_flags(row, self._scale.phases[-1][0])
        if row.encoder:
            return row.encoder
        assert row.size is not None  # Rows have an encoder or a size.
        return _join_words(
            self._scale.sizes.get(row.size, row.size),
            _format_flags(row.config),
            _format_flags(record_flags),
            _format_flags(training_flags),
        )

    def _split_row_flags(self, row: Row, phase_flags: Flags) -> tuple[Flags, Flags]:
        """Returns a row's flags of the records, and those of the training.

        Flags of the training that change no phase are left out. The flags of the masks are the
        training's if it draws the masks.
        """
        self._check_reserved(row.pretraining)
        draws_masks = (phase_flags | row.pretraining).get("dynamic_masking")
        record_flags: Flags = {}
        training_flags: Flags = {}
        for name, value in row.records.items():
            if draws_masks and name in _MASKING_FLAGS:
                training_flags[name] = value
            else:
                record_flags[name] = value
        training_flags |= row.pretraining
        changed_flags = {
            name: value
            for name, value in training_flags.items()
            if any(phase.get(name) != value for phase in self._phase_values)
        }
        return record_flags, changed_flags

    def _plan_model(self, row: Row, column: ShownColumn, seed: int) -> Place:
        """Returns the place of the model from which a fine-tuning or an evaluation starts."""
        if row.encoder:
            return Place(self._choose_encoder(row.encoder, seed if row.ensemble else 1))
        pretraining_seed = (seed - 1) % self._scale.pretraining_seeds + 1
        phases = self._plan_pretraining(row, pretraining_seed)
        if column.declared.at is None:
            return Place(phases[-1])
        return self._find_checkpoint(column.label, column.declared.at, phases)

    def _choose_encoder(self, name: str, member: int) -> str:
        """Returns the model of a member of an ensemble, counted from 1.

        The members take turns with the model of the row and those of the same name with a number,
        such as large, large2 and large3.
        """
        numbered = [other for other in self._encoders if is_numbered(other, name)]
        return [name, *numbered][(member - 1) % (1 + len(numbered))]

    def _find_checkpoint(self, label: str, share: float, phases: Sequence[Step]) -> Place:
        """Returns the place of the checkpoint after a share of all updates of a pre-training."""
        ranges = [list_updates(phase) for phase in phases]
        update = round(share * sum(map(len, ranges)))
        index = 0
        while update > len(ranges[index]):
            update -= len(ranges[index])
            index += 1
        phase = phases[index]
        if update == len(ranges[index]):
            return Place(phase)  # A training saves its end.
        update = ranges[index][update - 1]
        is_saved = update % int(phase.flag("save_checkpoints_steps", _SAVE_STEPS)) == 0
        if not is_saved or phase.flag("keep_checkpoint_max") != 0:
            raise InputError(
                f"column {label!r}: needs the checkpoint of update {update} of phase "
                f"{index + 1}; set keep_checkpoint_max to 0, and save_checkpoints_steps to a "
                f"divisor, in {self._scale.name}.pretraining"
            )
        return Place(phase, f"model.ckpt-{update}")

    def _plan_evaluation(self, row: Row, column: ShownColumn, seed: int) -> Step:
        """Returns the evaluation of a pre-trained model on minimal pairs or on held-out text.

        The held-out text is masked as in the paper.
        """
        model = self._plan_model(row, column, seed)
        label = _join_words(self._model_label(row), model.path, f"seed {seed}")
        if column.metric == MINIMAL_PAIRS:
            self._check_reserved(self._scale.minimal_pairs)
            flags = {
                "model": model,
                "input_file": Place(DATA, PAIRS),
                "output_file": Place(OUTPUT, f"{MINIMAL_PAIRS}.tsv"),
                **self._scale.minimal_pairs,
            }
            return self._make_step(
                "minimal pairs", label, "evaluate_minimal_pairs", flags, seed=seed
            )
        phase_flags, record_flags = self._scale.phases[-1]
        records, lengths = self._plan_records(
            HELD_OUT, "held_out", "", record_flags | self._scale.held_out
        )
        flags = {
            "do_eval": True,
            "input_file": records,
            "model": model,
            "output_dir": Place(OUTPUT),
            "eval_batch_size": 32,
            "max_eval_steps": 0,
            **lengths,
        }
        if "use_next_sentence" in phase_flags:
            flags["use_next_sentence"] = phase_flags["use_next_sentence"]
        flags |= row.pretraining | self._training_flags
        return self._make_step("evaluation", label, "run_pretraining", flags, seed=seed)

    def _recipe(self, task: Task, row: Row, special_flags: Flags) -> Flags:
        """Returns the flags of a fine-tuning; special ones have precedence over general ones."""
        flags = task.flags | self._scale.fine_tuning | self._scale.recipes.get(task.name, {})
        if not row.encoder:
            flags |= self._scale.from_text | self._scale.recipes_from_text.get(task.name, {})
        for name in special_flags:
            flags |= self._catalogue.with_flag.get(name, {}) | self._scale.with_flag.get(name, {})
        flags |= special_flags
        self._check_reserved(flags, RESERVED_FLAGS | task.data.keys())
        return flags | self._training_flags

    def _plan_fine_tuning(self, row: Row, column: ShownColumn, task: Task, seed: int) -> Step:
        """Returns the fine-tuning of a cell, after that on the row's first task if it has one."""
        model = self._plan_model(row, column, seed)
        if row.first_task:
            first_task = self._catalogue.tasks[row.first_task]
            first_step = self._make_fine_tuning(first_task, row, row.fine_tuning, model, seed)
            model = self._single_model(first_step)
        special_flags = column.declared.fine_tuning | row.fine_tuning
        return self._make_fine_tuning(
            task, row, special_flags, model, seed, evaluation=task.evaluation
        )

    def _make_fine_tuning(
        self,
        task: Task,
        row: Row,
        special_flags: Flags,
        model: Place,
        seed: int,
        *,
        evaluation: str | None = None,
    ) -> Step:
        """Returns a fine-tuning of a model; it evaluates with the flag `evaluation`."""
        flags = {"model": model, "output_dir": Place(OUTPUT), "do_train": True}
        if evaluation is not None:
            flags[evaluation] = True
        flags |= _data_places(task.data)
        flags |= self._recipe(task, row, special_flags)
        flags["random_seed"] = seed
        is_second = isinstance(model.root, Step) and model.root.kind == _FINE_TUNING
        after = f"after {row.first_task}" if is_second else ""
        label = _join_words(
            task.name,
            model.root if isinstance(model.root, str) else self._model_label(row),
            model.path,
            after,
            _format_flags(special_flags),
            f"seed {seed}",
        )
        return self._make_step(_FINE_TUNING, label, task.script, flags, seed=seed)

    def _single_model(self, fine_tuning: Step) -> Place:
        """Returns the place of the model of a fine-tuning; rejects a search, which has several."""
        if fine_tuning.flag("search", ""):
            raise InputError(
                f"{self._path}: {fine_tuning.label} is a search, which leaves several models; give "
                "it no search"
            )
        return Place(fine_tuning)

    def _plan_test(self, fine_tuning: Step, task: Task) -> Step:
        flags = _remove_training_flags(fine_tuning)
        flags["model"] = self._single_model(fine_tuning)
        flags[task.evaluation] = True
        flags |= _data_places(task.test_data)
        return self._make_step("test", fine_tuning.label, task.script, flags, seed=fine_tuning.seed)

    def _plan_ensemble(self, row: Row, column: ShownColumn, task: Task, size: int) -> Step:
        """Returns the mean of the predictions of fine-tunings with the seeds from 1."""
        count = min(size, self._scale.ensemble or size)
        seeds = range(1, count + 1)
        members = [self._plan_fine_tuning(row, column, task, seed) for seed in seeds]
        flags = _remove_training_flags(members[0])
        flags["model"] = self._plan_model(row, column, 1)
        flags["ensemble_dirs"] = tuple(self._single_model(member) for member in members)
        label = f"{members[0].label} to {count}"
        return self._make_step("ensemble", label, task.script, flags)


def list_updates(phase: Step) -> range:
    """Return the numbers of the updates of a phase of a pre-training.

    Args:
        phase: the step of the phase.
    """
    start = 1
    if phase.continued is not None:
        assert isinstance(phase.continued.root, Step)  # the phase before
        start += int(phase.continued.root.flag(_STOP_FLAG))
    num_steps = int(phase.flag("num_train_steps", _NUM_TRAIN_STEPS))
    return range(start, int(phase.flag(_STOP_FLAG, num_steps)) + 1)


def _data_places(paths: Mapping[str, str]) -> dict[str, Place]:
    return {name: Place(DATA, path) for name, path in paths.items()}


def _remove_training_flags(step: Step) -> dict[str, Any]:
    """Returns the flags of a step without those that make it train."""
    return {name: value for name, value in step.flags if name not in ("do_train", "random_seed")}


def _join_words(*parts: str) -> str:
    return " ".join(filter(None, parts))


def _format_flags(flags: Flags) -> str:
    return " ".join(f"{name}={value}" for name, value in flags.items())


def _freeze(flags: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Returns flags or fields as a hashable value; a list becomes a tuple."""
    items = []
    for name, value in flags.items():
        items.append((name, tuple(value) if isinstance(value, list) else value))
    return tuple(items)
