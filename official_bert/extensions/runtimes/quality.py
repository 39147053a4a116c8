"""Measures the loss of 8 bits: the metric of a task on its dev set, in float32 and converted.

The same set has the texts on which some formats measure the ranges of activations.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from official_bert.data.table_formats import expand_paths
from official_bert.extensions.runtimes.options import FormatOptions
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.serving.dev_metric import DevMetric, Run
from official_bert.serving.export import TrainedModel
from official_bert.tasks.base import DataFiles

_SMALLEST_LOSS = 0.01  # A --max_loss of 0 needs a development set as large as for this loss.


def check_flags(flags: FormatOptions, calibrated_formats: Sequence[str]) -> None:
    """Reject flags that need a development set and name none, before a model is built.

    Args:
        flags: the flags of the formats.
        calibrated_formats: the formats whose converter needs examples.

    Raises:
        InputError: the flags name no development set, or one that does not exist.
    """
    if flags.max_loss is None and not calibrated_formats:
        return
    if flags.dev_file:
        paths = expand_paths(flags.dev_file, "dev_file")
    elif flags.data_dir:
        paths = [flags.data_dir]
    elif flags.max_loss is not None:
        raise InputError(
            "--max_loss: is measured on a development set; give its --dev_file, or its --data_dir"
        )
    else:
        raise InputError(
            f"--dtype={flags.dtype}: the ranges of {calibrated_formats[0]} files are measured on "
            "the texts of a development set; give its --dev_file, or its --data_dir"
        )
    for path in paths:
        if not files.exists(path):
            raise InputError(f"{path}: no such file or folder; correct --dev_file or --data_dir")


def read_dev_metric(built: TrainedModel, flags: FormatOptions) -> DevMetric:
    """Read and encode the first development set of a task.

    Args:
        built: the model.
        flags: the flags of the formats, which name the set.

    Returns:
        The metric, with the examples of the set.

    Raises:
        InputError: the task has none, or no metric, or the set is too small.
    """
    data_files = DataFiles(flags.data_dir, {"dev": flags.dev_file})
    max_loss = flags.max_loss
    flag = f"--dtype={flags.dtype}" if max_loss is None else "--max_loss"
    metric = DevMetric(built, data_files, flag)
    num_examples = len(metric.encoded.lengths)
    if not num_examples:
        raise InputError(f"{flag}: the development set has no examples; give another one")
    if max_loss is None:
        return metric
    num_needed = math.ceil(1 / (max_loss or _SMALLEST_LOSS))
    if num_examples < num_needed:
        raise InputError(
            f"--max_loss={max_loss:g}: the development set has {num_examples} examples, of "
            f"which one is more than that share; give at least {num_needed} examples, or a larger "
            "--max_loss"
        )
    return metric


def check_measurable(max_loss: float, metric: str, value: float) -> None:
    """Reject a metric of the float32 model of which nothing can be lost.

    Args:
        max_loss: the largest share of the metric that may be lost.
        metric: the name of the metric.
        value: its value in float32.

    Raises:
        InputError: the value is 0 or not finite.
    """
    if not value or not math.isfinite(value):
        raise InputError(
            f"--max_loss={max_loss:g}: {metric} is {value:g} in float32, of which nothing "
            "can be lost; give a trained model and its development set"
        )


def check_loss(
    dtype: str, runs: Mapping[str, Run], metric: DevMetric, max_loss: float
) -> dict[str, Any]:
    """Measure the metric of a model and of its exports.

    Args:
        dtype: the type of the weights of the exports.
        runs: by format, a function from the encoder's features to the outputs of `serving_default`.
        metric: the metric, with the examples of the development set.
        max_loss: the largest share of the metric that may be lost.

    Returns:
        The name of the metric, and its value in float32 and by format.

    Raises:
        InputError: a format lost more than --max_loss.
    """
    whole = metric.measure_model()
    check_measurable(max_loss, metric.name, whole)
    metrics: dict[str, Any] = {"metric": metric.name, "float32": whole}
    for name, run in runs.items():
        small = metric.measure_export(run)
        lost = lost_share(whole, small)
        figures = f"{metric.name} is {whole:.6g} in float32 and {small:.6g} in {dtype} as {name}"
        logging.info("On the dev set %s, a loss of %.2f%%", figures, 100 * lost)
        if not lost <= max_loss:
            raise InputError(
                f"--max_loss={max_loss:g}: {figures}, a loss of {lost:.2%}; nothing is "
                "exported. Give another --export_format, --dtype=float32, or a larger --max_loss"
            )
        metrics[name] = small
    return metrics


def lost_share(whole: float, small: float) -> float:
    """Returns the share of a metric of the whole model that the small one lacks.

    Args:
        whole: the metric of the whole model, which is not 0.
        small: the metric of the small model.

    Returns:
        The share; it is negative if the small model is better.
    """
    return (whole - small) / abs(whole)
