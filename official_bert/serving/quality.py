"""Measures what 8 bits cost: the metric of a task on its dev set, by the model in float32 and by
the converted one.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.data.table_formats import paths_of
from official_bert.features import ENCODER_INPUTS, EncodedSet
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.options.serving import ExportOptions
from official_bert.tasks.base import DataFiles, Task
from official_bert.training.loop import compiled_outputs, predict

_BATCH_SIZE = 32
_SMALLEST_LOSS = 0.01  # whose development set a --max_loss of 0 needs
Features = Mapping[str, Any]


def check_flags(options: ExportOptions):
    """Refuses, before a model is built, an --export_dir that is a file, and a --max_loss without
    a development set.
    """
    if files.exists(options.export_dir) and not files.is_folder(options.export_dir):
        raise InputError(
            f"--export_dir={options.export_dir}: is a file; name a folder, in which the version is "
            "written"
        )
    if options.max_loss is None:
        return
    if not options.dev_file and not options.data_dir:
        raise InputError(
            "--max_loss: is measured on a development set; give its --dev_file, or its --data_dir"
        )
    for path in paths_of(options.dev_file, "dev_file") if options.dev_file else [options.data_dir]:
        if not files.exists(path):
            raise InputError(f"{path}: no such file or folder; correct --dev_file or --data_dir")


def dev_set(options: ExportOptions, task: Task, tokenizer) -> EncodedSet:
    """Reads and encodes the first development set of a task; raises InputError if it has none,
    or no metric.
    """
    if not isinstance(task, Task):
        raise InputError(
            f"--max_loss: --task_name={options.task_name} has no metric of a dev set; leave it out"
        )
    sets = task.read(DataFiles(options.data_dir, {"dev": options.dev_file}), "dev")
    if not sets:
        raise InputError(
            f"--max_loss: --task_name={options.task_name} has no dev set with labels; leave it out"
        )
    encoded = task.encode(next(iter(sets.values())), tokenizer, options.max_seq_length, "dev")
    num_examples, needed = len(encoded.lengths), math.ceil(1 / (options.max_loss or _SMALLEST_LOSS))
    if num_examples < needed:
        raise InputError(
            f"--max_loss={options.max_loss:g}: the development set has {num_examples} examples, of "
            f"which one is more than that share; give at least {needed} examples, or a larger "
            "--max_loss"
        )
    return encoded


def check_measurable(options: ExportOptions, metric: str, value: float):
    """Refuses a metric of the float32 model of which nothing can be lost."""
    if not value or not math.isfinite(value):
        raise InputError(
            f"--max_loss={options.max_loss:g}: {metric} is {value:g} in float32, of which nothing "
            "can be lost; give a trained model and its development set"
        )


def check_loss(
    options: ExportOptions,
    task: Task,
    model,
    runs: Mapping[str, Callable[[dict], dict[str, np.ndarray]]],
    encoded: EncodedSet,
) -> dict[str, float]:
    """Returns the metric of `model` and of its exports, by format; raises InputError if one lost
    too much of it.

    Each of `runs` maps the encoder's features to the outputs of `serving_default`.
    """
    strategy = tf.distribute.get_strategy()
    temperature = getattr(task, "temperature", None) or 1.0  # by which an export divides its logits

    def answered(run, features: Features):
        """Gives what the model gives, by the outputs of the export."""
        found = run({name: np.asarray(features[name]) for name in ENCODER_INPUTS})
        if "start_logits" in found:
            return found["start_logits"], found["end_logits"]
        if "score" in found:
            return found["score"][:, None]
        if "logits" in found:
            return found["logits"] * np.float32(temperature)
        if "embedding" not in found:
            raise InputError(
                f"--max_loss: nothing is known of the outputs {', '.join(found)} of "
                f"--task_name={options.task_name}; leave it out"
            )
        return found["embedding"]

    def metric_of(outputs_of: Callable[[dict], dict]) -> float:
        outputs = predict(outputs_of, strategy, encoded, _BATCH_SIZE, options.max_seq_length, True)
        return float(task.metrics(encoded, task.outputs_of_set(encoded, outputs))[task.main_metric])

    whole = metric_of(compiled_outputs(strategy, lambda features: task.outputs(model, features)))
    check_measurable(options, task.main_metric, whole)
    found = {"metric": task.main_metric, "float32": whole}
    for name, run in runs.items():
        small = metric_of(functools.partial(task.outputs, functools.partial(answered, run)))
        lost = _lost_share(whole, small)
        figures = (
            f"{task.main_metric} is {whole:.6g} in float32 and {small:.6g} in {options.dtype} as "
            f"{name}"
        )
        logging.info("On the dev set %s, a loss of %.2f%%", figures, 100 * lost)
        if not lost <= options.max_loss:
            raise InputError(
                f"--max_loss={options.max_loss:g}: {figures}, a loss of {lost:.2%}; nothing is "
                "exported. Give another --export_format, --dtype=float32, or a larger --max_loss"
            )
        found[name] = small
    return found


def _lost_share(whole: float, small: float) -> float:
    return (whole - small) / abs(whole)
