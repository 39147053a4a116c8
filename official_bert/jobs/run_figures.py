"""Reads the figures of a run: those of its training, and those of its evaluations.

In: an output folder. Out: {name: {step: value}} of each. A training of this version has left train_log.jsonl, and
evaluations during training eval_history.jsonl; otherwise the figures are in TensorBoard's event files.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping

from official_bert import files
from official_bert.errors import InputError
from official_bert.jobs.periodic_evaluation import HISTORY_FILE
from official_bert.training.train_log import FILE as TRAIN_LOG
from official_bert.training.train_log import read_train_log

Curves = dict[str, dict[int, float]]


def training_figures(output_dir: str) -> Curves:
    """Returns the figures of the training's progress lines.

    Raises:
        InputError: the folder has none.
    """
    path = os.path.join(output_dir, TRAIN_LOG)
    curves = _curves(read_train_log(path)) if files.exists(path) else _of_event_files(output_dir)
    if not curves:
        raise InputError(
            f"{output_dir}: has neither {TRAIN_LOG} nor TensorBoard's event files of a training; give the --output_dir "
            "of a run with --do_train"
        )
    return curves


def evaluation_figures(output_dir: str) -> Curves:
    """Returns the figures of the evaluations during training or, without any, of those after it."""
    path = os.path.join(output_dir, HISTORY_FILE)
    if files.exists(path):
        return _curves(read_train_log(path))
    return _of_event_files(os.path.join(output_dir, "eval"))


def _curves(rows: Iterable[Mapping]) -> Curves:
    curves: Curves = {}
    for row in rows:
        for name, value in row.items():
            if name != "step" and isinstance(value, int | float) and math.isfinite(value):
                curves.setdefault(name, {})[row["step"]] = value
    return curves


def _of_event_files(folder: str) -> Curves:
    """Returns the scalars of all event files; of a step that two of them have, those of the later file."""
    return _curves(
        row for path in files.matching(os.path.join(folder, "events.out.tfevents.*")) for row in _events(path)
    )


def _events(path: str) -> Iterator[dict]:
    import tensorflow as tf

    try:
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                yield {"step": event.step, value.tag: tf.make_ndarray(value.tensor).item()}
    except (tf.errors.DataLossError, ValueError) as error:
        raise InputError(f"{path}: is no event file of TensorBoard ({error}); remove it") from None
