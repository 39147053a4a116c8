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
from official_bert.extensions.runtimes.options import FormatOptions
from official_bert.features import ENCODER_INPUTS, EncodedSet
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.serving.export import TrainedModel
from official_bert.tasks.base import DataFiles, Task
from official_bert.training.loop import compiled_outputs, predict

_BATCH_SIZE = 32
_SMALLEST_LOSS = 0.01  # whose development set a --max_loss of 0 needs
Features = Mapping[str, Any]


def check_flags(flags: FormatOptions):
    """Refuses a --max_loss without a development set, before a model is built."""
    if flags.max_loss is None:
        return
    if not flags.dev_file and not flags.data_dir:
        raise InputError(
            "--max_loss: is measured on a development set; give its --dev_file, or its --data_dir"
        )
    for path in paths_of(flags.dev_file, "dev_file") if flags.dev_file else [flags.data_dir]:
        if not files.exists(path):
            raise InputError(f"{path}: no such file or folder; correct --dev_file or --data_dir")


def dev_set(built: TrainedModel, flags: FormatOptions) -> EncodedSet:
    """Reads and encodes the first development set of a task.

    Raises:
        InputError: the task has none, or no metric, or the set is too small.
    """
    task, options = built.task, built.options
    if not isinstance(task, Task):
        raise InputError(
            f"--max_loss: --task_name={options.task_name} has no metric of a dev set; leave it out"
        )
    sets = task.read(DataFiles(flags.data_dir, {"dev": flags.dev_file}), "dev")
    if not sets:
        raise InputError(
            f"--max_loss: --task_name={options.task_name} has no dev set with labels; leave it out"
        )
    examples = next(iter(sets.values()))
    encoded = task.encode(examples, built.tokenizer, options.max_seq_length, "dev")
    num_examples, needed = len(encoded.lengths), math.ceil(1 / (flags.max_loss or _SMALLEST_LOSS))
    if num_examples < needed:
        raise InputError(
            f"--max_loss={flags.max_loss:g}: the development set has {num_examples} examples, of "
            f"which one is more than that share; give at least {needed} examples, or a larger "
            "--max_loss"
        )
    return encoded


def check_measurable(flags: FormatOptions, metric: str, value: float):
    """Refuses a metric of the float32 model of which nothing can be lost."""
    if not value or not math.isfinite(value):
        raise InputError(
            f"--max_loss={flags.max_loss:g}: {metric} is {value:g} in float32, of which nothing "
            "can be lost; give a trained model and its development set"
        )


def check_loss(
    built: TrainedModel,
    flags: FormatOptions,
    runs: Mapping[str, Callable[[dict], dict[str, np.ndarray]]],
    encoded: EncodedSet,
) -> dict[str, Any]:
    """Measures the metric of a model and of its exports.

    Args:
        built: the model in float32.
        flags: the flags of the export.
        runs: by format, a function from the encoder's features to the outputs of `serving_default`.
        encoded: the development set.

    Returns:
        The name of the metric, and its value in float32 and by format.

    Raises:
        InputError: a format lost more than --max_loss.
    """
    task, max_seq_length = built.task, built.options.max_seq_length
    strategy = tf.distribute.get_strategy()

    def measure(compute_outputs: Callable[[dict], dict]) -> float:
        outputs = predict(compute_outputs, strategy, encoded, _BATCH_SIZE, max_seq_length, True)
        return float(task.metrics(encoded, task.outputs_of_set(encoded, outputs))[task.main_metric])

    whole = measure(
        compiled_outputs(strategy, lambda features: task.outputs(built.model, features))
    )
    check_measurable(flags, task.main_metric, whole)
    metrics: dict[str, Any] = {"metric": task.main_metric, "float32": whole}
    for name, run in runs.items():
        answer = functools.partial(_answer_as_model, built, run)
        small = measure(functools.partial(task.outputs, answer))
        lost = _lost_share(whole, small)
        figures = (
            f"{task.main_metric} is {whole:.6g} in float32 and {small:.6g} in {flags.dtype} as "
            f"{name}"
        )
        logging.info("On the dev set %s, a loss of %.2f%%", figures, 100 * lost)
        if not lost <= flags.max_loss:
            raise InputError(
                f"--max_loss={flags.max_loss:g}: {figures}, a loss of {lost:.2%}; nothing is "
                "exported. Give another --export_format, --dtype=float32, or a larger --max_loss"
            )
        metrics[name] = small
    return metrics


def _answer_as_model(built: TrainedModel, run: Callable, features: Features):
    """Returns what the model returns, computed from the outputs of its export."""
    outputs = run({name: np.asarray(features[name]) for name in ENCODER_INPUTS})
    if "start_logits" in outputs:
        return outputs["start_logits"], outputs["end_logits"]
    if "score" in outputs:
        return outputs["score"][:, None]
    if "logits" in outputs:
        # An export divides its logits by the temperature.
        return outputs["logits"] * np.float32(getattr(built.task, "temperature", None) or 1.0)
    if "embedding" not in outputs:
        raise InputError(
            f"--max_loss: nothing is known of the outputs {', '.join(outputs)} of "
            f"--task_name={built.options.task_name}; leave it out"
        )
    return outputs["embedding"]


def _lost_share(whole: float, small: float) -> float:
    return (whole - small) / abs(whole)
