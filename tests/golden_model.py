"""The recordings of the original's model: where they lie and how they are read.

Tolerances are those of tests/golden/README.md: an independent implementation stays within them, and
every known mistake does not.
"""

import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertConfig, BertPretrainer
from official_bert.optimization import (
    EXCLUDED_FROM_DECAY,
    AdamWeightDecayOptimizer,
    WarmupLinearDecay,
)
from official_bert.tasks.pretraining.objective import PretrainingObjective
from official_bert.training.loop import compiled_steps
from official_bert.training.step import TrainingStep
from tests import training_state
from tests.shared import GOLDEN

OUTPUTS, LOSSES, GRADIENTS, TRAINING_LOSSES, FINAL_WEIGHTS, SLOTS = (
    1e-5,
    5e-6,
    5e-5,
    1e-5,
    2e-5,
    2e-6,
)
MASKED_ROWS = 2e-3  # -10000 is added, which rounds the scores to 1/1024

MODELS = ("model_gelu", "model_relu16types")
BATCHES = ("usual", "one_prediction", "no_prediction", "masked_rows")


@pytest.fixture(params=MODELS)
def golden(request) -> pathlib.Path:
    """The folder of one recorded model."""
    return GOLDEN / request.param


def load_batch(folder: pathlib.Path, kind: str) -> dict[str, np.ndarray]:
    """The seven features of a recorded batch, in the types of the input pipeline."""
    arrays = np.load(folder / f"{kind}_inputs.npz")
    return {
        name: arrays[name].astype(np.float32 if name.endswith("weights") else np.int32)
        for name in arrays.files
    }


def load_pretrainer(
    folder: pathlib.Path, checkpoint: str = "bert_model.ckpt", **changes
) -> BertPretrainer:
    """The recorded model; its checkpoint is read with TensorFlow alone, by name."""
    config = BertConfig.from_dict(json.loads((folder / "bert_config.json").read_text()) | changes)
    pretrainer = BertPretrainer(config)
    reader = tf.train.load_checkpoint(str(folder / checkpoint))
    for name, variable in named_weights(pretrainer):
        variable.assign(reader.get_tensor(name))
    return pretrainer


class Losses(NamedTuple):
    total: tf.Tensor
    masked_lm: tf.Tensor
    next_sentence: tf.Tensor


def losses_of(pretrainer: BertPretrainer, batch: dict[str, np.ndarray]) -> Losses:
    """The losses of a batch without dropout, by the objective that training minimises: float32[]
    each.
    """
    batch_size = len(batch["input_ids"])
    objective = PretrainingObjective(pretrainer, batch_size)
    total, sums = objective.loss(batch, objective.totals(batch), None)
    next_sentence = sums["next_sentence_loss"] / batch_size
    return Losses(total, total - next_sentence, next_sentence)


def named_weights(pretrainer: BertPretrainer) -> list[tuple[str, tf.Variable]]:
    """Weights under the original's names, which are the layers' paths less the model's own."""
    return [
        (weight.path.removeprefix("pretrainer/"), weight.value)
        for weight in pretrainer.trainable_variables
    ]


def steps_of(objective, weights: Mapping, learning_rate, **step_options) -> tuple[Callable, Any]:
    """The original's updates of named weights, as a function of (batches, their number), and the
    optimizer.
    """
    optimizer = AdamWeightDecayOptimizer(
        learning_rate, 0.01, exclude_from_weight_decay=EXCLUDED_FROM_DECAY
    )
    optimizer.build(weights.items())
    step = TrainingStep(objective, list(weights.values()), optimizer, run_seed=1, **step_options)
    return compiled_steps(tf.distribute.get_strategy(), step), optimizer


def schedule_of(settings: Mapping) -> WarmupLinearDecay:
    """The learning rate of a recorded training."""
    return WarmupLinearDecay(
        settings["init_lr"], settings["num_train_steps"], settings["num_warmup_steps"]
    )


def assert_state_as_recorded(variables: Mapping, recorded: Mapping):
    """Weights, slots and step count, by name in a checkpoint, are those of a training.npz, which
    has losses, too.
    """
    expected = {name: value for name, value in recorded.items() if name != "losses"}
    training_state.assert_close(variables, expected, weights=FINAL_WEIGHTS, first_moments=SLOTS)


def largest_difference(actual, expected) -> float:
    return float(np.max(np.abs(np.asarray(actual, np.float64) - np.asarray(expected, np.float64))))
