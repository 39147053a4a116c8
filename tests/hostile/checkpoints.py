"""Checkpoints of hostile runs: good ones of every task, and the faults that are put into them."""

import pathlib
import shutil
from collections.abc import Callable

import numpy as np

from official_bert.checkpoints import folder as checkpoint_folder
from official_bert.checkpoints import names, tf1

HIDDEN = 16
KERNEL = "bert/encoder/layer_0/intermediate/dense/kernel"
Tensors = dict[str, np.ndarray]


def tensors_of(folder: pathlib.Path) -> Tensors:
    """Returns the weights of the good model: an encoder of one layer, and the heads of
    pre-training.
    """
    checkpoint = tf1.Tf1Checkpoint(str(folder / "bert_model.ckpt"))
    return {name: checkpoint.read(name) for name in checkpoint.shapes}


def with_head(tensors: Tensors, num_outputs: int, scope: str = "") -> Tensors:
    """Adds the linear head of a task."""
    weights = np.full((num_outputs, HIDDEN), 0.01, np.float32)
    bias = np.zeros(num_outputs, np.float32)
    return tensors | {
        f"{scope}output_weights": weights,
        f"{scope}output_bias": bias,
    }


def with_value(value: float, name: str = KERNEL) -> Callable[[Tensors], Tensors]:
    """Returns a function that puts one value into a weight."""

    def changed(tensors: Tensors) -> Tensors:
        weight = tensors[name].copy()
        weight.flat[3] = value
        return tensors | {name: weight}

    return changed


def without(part: str) -> Callable[[Tensors], Tensors]:
    """Returns a function that drops the weights whose names contain a text."""

    def changed(tensors: Tensors) -> Tensors:
        return {name: value for name, value in tensors.items() if part not in name}

    return changed


def write_output_dir(
    folder: pathlib.Path,
    tensors: Tensors,
    steps: tuple[int, ...] = (4,),
):
    """Writes what a training run leaves: checkpoints with slots, their list, and the
    configuration.
    """
    out = folder / "out"
    trained = dict(tensors)
    for name, value in tensors.items():
        for slot in names.SLOTS:
            trained[f"{name}/{slot}"] = np.zeros_like(value)
    file_names = []
    for step in steps:
        name = f"model.ckpt-{step}"
        trained["global_step"] = np.int64(step)
        tf1.write(str(out / name), trained)
        file_names.append(name)
    checkpoint_folder.write_state(str(out), file_names)
    shutil.copyfile(folder / "bert_config.json", out / "bert_config.json")
