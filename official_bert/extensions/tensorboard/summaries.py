"""What TensorBoard shows of a run beside its scalars: hyperparameters, and the confusion matrix."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.fine_tuning.plugin import Evaluation
from official_bert.io.errors import brief
from official_bert.metrics.classification import confusion_matrix
from official_bert.options.fields import flag_names, format_value
from official_bert.options.training import TrainingOptions
from official_bert.tasks.classification.task import ClassificationTask

_PIXELS = 24  # the width of a cell of the image
_MOST_LABELS = 100
_RIGHT, _WRONG = np.array((0, 114, 178)), np.array((213, 94, 0))


def write_hyperparameters(options: TrainingOptions) -> None:
    """Writes the flags that change a training, for the table HPARAMS.

    Args:
        options: the flags of the run; `output_dir` is the folder that this process writes to.
    """
    try:
        from tensorboard.plugins.hparams import api
    except ImportError:  # newer TensorFlows do not need tensorboard
        return
    values = {}
    for name in flag_names(type(options), "changes_training"):
        value = getattr(options, name, None)
        if value is not None:
            is_plain = isinstance(value, bool | int | float | str)
            values[name] = value if is_plain else format_value(value)
    folder = options.output_dir
    try:
        with tf.summary.create_file_writer(folder).as_default(step=0):
            api.hparams(values, trial_id=os.path.basename(folder))
    except tf.errors.OpError as error:
        logging.warning("TensorBoard gets no hyperparameters (%s)", brief(error))


def write_confusion(evaluation: Evaluation) -> None:
    """Writes the confusion matrix of a task with one label an example as an image.

    Args:
        evaluation: the evaluated set.
    """
    task = evaluation.task
    if not isinstance(task, ClassificationTask) or not task.output_kind.has_one_label:
        return
    num_labels = len(task.labels or ())
    encoded: Any = evaluation.encoded
    if not len(encoded.lengths) or num_labels > _MOST_LABELS:
        return
    is_out = getattr(encoded, "is_out_of_scope", None)
    is_in_scope = np.ones(len(encoded.label_ids), bool) if is_out is None else ~is_out
    predictions = task.predictions(dict(evaluation.outputs))
    matrix = confusion_matrix(encoded.label_ids[is_in_scope], predictions[is_in_scope], num_labels)
    folder = os.path.join(evaluation.output_dir, f"eval{evaluation.suffix}")
    try:
        with tf.summary.create_file_writer(folder).as_default(step=evaluation.step):
            tf.summary.image(
                "confusion_matrix",
                draw_matrix(matrix)[None],
                description="A row is a true label, a column a predicted one, in the order of "
                f"labels.txt: {', '.join(map(str, task.labels or ()))}. Blue is right.",
            )
    except tf.errors.OpError as error:
        logging.warning("TensorBoard gets no confusion matrix (%s)", brief(error))


def draw_matrix(matrix: np.ndarray) -> np.ndarray:
    """Returns a confusion matrix as an image, uint8[height, width, 3].

    Args:
        matrix: the counts, int[n, n].
    """
    shares = (matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1))[..., None]
    is_right = np.eye(len(matrix), dtype=bool)[..., None]
    colors = np.where(is_right, _RIGHT, _WRONG)
    cells = 255 + (colors - 255) * shares
    image = np.repeat(np.repeat(cells, _PIXELS, axis=0), _PIXELS, axis=1)
    return image.round().astype(np.uint8)
