"""Checkpoints of hostile runs: good ones of every task, and the faults that are put into them."""

import pathlib
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
    return tensors | {
        f"{scope}output_weights": np.full((num_outputs, HIDDEN), 0.01, np.float32),
        f"{scope}output_bias": np.zeros(num_outputs, np.float32),
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
    return lambda tensors: {name: value for name, value in tensors.items() if part not in name}


def write_output_dir(folder: pathlib.Path, tensors: Tensors, steps: tuple[int, ...] = (4,)):
    """Writes what a training run leaves: checkpoints with slots, their list, and the
    configuration.
    """
    out = folder / "out"
    trained = dict(tensors)
    for name, value in tensors.items():
        trained |= {f"{name}/{slot}": np.zeros_like(value) for slot in names.SLOTS}
    for step in steps:
        tf1.write(
            str(out / f"model.ckpt-{step}"),
            trained | {"global_step": np.int64(step)},
        )
    checkpoint_folder.write_state(
        str(out),
        [f"model.ckpt-{step}" for step in steps],
    )
    (out / "bert_config.json").write_bytes((folder / "bert_config.json").read_bytes())
