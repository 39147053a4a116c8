"""The teacher of a distillation: a trained model whose outputs another one learns. It is never
saved with its student.

In: the folder of --teacher. Out: its model, which computes without dropout; or its outputs for all
    examples of a set.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.checkpoints import named_variables
from official_bert.features import TAUGHT, EncodedSet
from official_bert.io.errors import InputError
from official_bert.model_dir import holds_checkpoints
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.options.serving import ServedOptions
from official_bert.options.shared import BFLOAT16, FLOAT32
from official_bert.options.training import TrainingOptions
from official_bert.serving.export import TrainedModel, digest_of_weights
from official_bert.serving.model import build
from official_bert.tasks import registry
from official_bert.tasks.base import Task, TaskObjective, stacked
from official_bert.tokenization import FullTokenizer
from official_bert.training import distribution, precision, run_log
from official_bert.training.loop import compiled_outputs, predict

_FACT = "teacher_sha256"  # in the start line of run_log.py


def open_teacher(
    options: TrainingOptions,
    tokenizer: FullTokenizer,
    strategy: tf.distribute.Strategy,
    task_name: str | None = None,
) -> TrainedModel:
    """Builds the model of --teacher on the devices of a run, in bfloat16 if the run computes in it.

    Raises:
        InputError: it is no model of the task, has another vocabulary than the student, or is too
            short.
    """
    dtype, _ = precision.choose(options.dtype, strategy)
    try:
        with strategy.scope():
            stored = dtype if dtype == BFLOAT16 else FLOAT32
            teacher = build(ServedOptions(model=options.teacher, task_name=task_name), stored)
    except InputError as error:
        raise InputError(f"--teacher={options.teacher}: {error}") from None
    teacher.model.trainable = False  # so that no gradient is computed, and nothing kept for one
    has_other = tokenizer.vocab != teacher.tokenizer.vocab
    # None: records do not say.
    if has_other or _reading(tokenizer) not in ((None, None), _reading(teacher.tokenizer)):
        what = "another vocabulary" if has_other else "another do_lower_case or strip_accents"
        raise InputError(
            f"--teacher={options.teacher}: has {what} than the student; take a student of "
            "create_student.py, or another teacher"
        )
    if options.max_seq_length > teacher.config.max_position_embeddings:
        raise InputError(
            f"--max_seq_length={options.max_seq_length}: --teacher={options.teacher} was made for "
            f"sequences up to {teacher.config.max_position_embeddings} tokens"
        )
    return teacher


def facts_of(options: TrainingOptions, teacher: TrainedModel) -> dict[str, object]:
    """Returns what the start line of run_log.py keeps of a teacher.

    A training that goes on with other weights of its teacher than those it began with is warned of.
    """
    weights = {name: variable.value for name, variable in named_variables(teacher.model).items()}
    digest = digest_of_weights(weights)
    earlier = run_log.trainings(options.output_dir) if holds_checkpoints(options.output_dir) else []
    if earlier and earlier[-1].get(_FACT, digest) != digest:
        logging.warning(
            "--teacher=%s: has other weights than when the training in %s began; the rest of the "
            "training learns from "
            "these", options.teacher, options.output_dir,
        )  # fmt: skip
    return {_FACT: digest}


def _reading(tokenizer: FullTokenizer) -> tuple[bool | None, bool | None]:
    """Returns whether text is lower-cased, and whether it loses its accents."""
    lower, strip = tokenizer.basic_tokenizer.do_lower_case, tokenizer.basic_tokenizer.strip_accents
    return lower, lower if strip is None else strip


def outputs_of_teacher(
    options: FineTuningOptions, task: Task, tokenizer: FullTokenizer, encoded: EncodedSet, strategy
) -> tuple[np.ndarray, dict[str, object]]:
    """Returns what a teacher of the same task makes of all examples of a training set, float32[n,
    ...], with its facts.

    They are those of `facts_of`.
    """
    if type(task).soft_losses is Task.soft_losses:
        task.soft_losses(None, None, 1.0)  # says that it has none
    teacher = open_teacher(options, tokenizer, strategy)
    _check_task(options, task, teacher)
    logging.info("The teacher computes its outputs for %d examples ...", len(encoded.lengths))
    pads_to_longest = options.length_aware_batches and not distribution.is_tpu(strategy)
    reads_padding = getattr(teacher.task.objective(teacher.model), "reads_padding", False)
    run = compiled_outputs(strategy, lambda features: {TAUGHT: stacked(teacher.model(features))})
    batches = (
        options.predict_batch_size,
        options.max_seq_length,
        pads_to_longest and not reads_padding,
    )
    return predict(run, strategy, encoded, *batches)[TAUGHT], facts_of(options, teacher)


def _check_task(options: FineTuningOptions, task: Task, teacher: TrainedModel):
    """Refuses a teacher of another task, of other labels, or of the same ones in another order."""
    name = teacher.options.task_name
    kinds = [one.settings().get("label_type") for one in (task, teacher.task)]
    if not registry.is_same(name, options.task_name) or kinds[0] != kinds[1]:
        kind = f" of --label_type={kinds[1]}" if kinds[1] else ""
        raise InputError(
            f"--teacher={options.teacher}: was trained on {name}{kind}, not on "
            f"{options.task_name}; name the --output_dir of a training on the same task"
        )
    ours, theirs = ([str(label) for label in one.labels or ()] for one in (task, teacher.task))
    if ours != theirs:
        raise InputError(
            f"--teacher={options.teacher}: its outputs stand for {', '.join(theirs)}, and those of "
            f"the student for {', '.join(ours)}; give data with the teacher's labels, for a text "
            "task with --labels in its order, or train another teacher"
        )


class WithTeacher:
    """An encoded set whose batches have the outputs of a teacher, as the feature `teacher_outputs`."""

    def __init__(self, encoded: EncodedSet, taught: np.ndarray):
        """Adds float32[n, ...], or float32[n, length, ...], of which a batch has its own length."""
        self._encoded, self._taught, self.lengths = encoded, taught, encoded.lengths

    def features(self, rows: np.ndarray, length: int) -> Mapping[str, np.ndarray]:
        taught = self._taught[rows]
        return self._encoded.features(rows, length) | {
            TAUGHT: taught[:, :length] if taught.ndim > 2 else taught
        }


def distilled(objective: TaskObjective, task: Task, options: FineTuningOptions) -> TaskObjective:
    """Returns the objective of a task with the loss of its teacher's outputs."""
    if not hasattr(objective, "taught_by"):
        raise InputError(
            f"--teacher: the objective of {type(task).__name__} is no TaskObjective; leave the "
            "flag out"
        )
    losses = functools.partial(task.soft_losses, temperature=options.distillation_temperature)
    return objective.taught_by(losses, options.distillation_weight)
