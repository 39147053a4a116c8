"""The recordings of the original's model: where they lie and how they are read.

`model_gelu` is committed under tests/golden; `model_relu16types` lies in the shared folder. Tolerances are those
of its README: an independent implementation stays within them, and every known mistake does not.
"""

import json
import pathlib
from collections.abc import Mapping

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertConfig, BertPretrainer
from tests import training_state
from tests.shared import ROOT, shared

OUTPUTS, LOSSES, GRADIENTS, TRAINING_LOSSES, FINAL_WEIGHTS, SLOTS = 1e-5, 5e-6, 5e-5, 1e-5, 2e-5, 2e-6
MASKED_ROWS = 2e-3  # -10000 is added, which rounds the scores to 1/1024

MODELS = ("model_gelu", "model_relu16types")
BATCHES = ("usual", "one_prediction", "no_prediction", "masked_rows")


@pytest.fixture(params=MODELS)
def golden(request) -> pathlib.Path:
    """The folder of one recorded model."""
    committed = ROOT / "tests" / "golden" / request.param
    return committed if committed.exists() else shared("golden", request.param)


def load_batch(folder: pathlib.Path, kind: str) -> dict[str, np.ndarray]:
    """The seven features of a recorded batch, in the types of the input pipeline."""
    arrays = np.load(folder / f"{kind}_inputs.npz")
    return {
        name: arrays[name].astype(np.float32 if name.endswith("weights") else np.int32)
        for name in arrays.files
    }


def load_pretrainer(folder: pathlib.Path, checkpoint: str = "bert_model.ckpt", **changes) -> BertPretrainer:
    """The recorded model; its checkpoint is read with TensorFlow alone, by name."""
    config = BertConfig.from_dict(json.loads((folder / "bert_config.json").read_text()) | changes)
    pretrainer = BertPretrainer(config)
    reader = tf.train.load_checkpoint(str(folder / checkpoint))
    for name, variable in named_weights(pretrainer):
        variable.assign(reader.get_tensor(name))
    return pretrainer


def named_weights(pretrainer: BertPretrainer) -> list[tuple[str, tf.Variable]]:
    """Weights under the original's names, which are the layers' paths less the model's own."""
    return [
        (weight.path.removeprefix("pretrainer/"), weight.value) for weight in pretrainer.trainable_variables
    ]


def assert_state_as_recorded(variables: Mapping, recorded: Mapping):
    """Weights, slots and step count are those of a recorded training run.

    Args:
        variables: by name in a checkpoint.
        recorded: content of a training.npz, which holds the losses, too.
    """
    expected = {name: value for name, value in recorded.items() if name != "losses"}
    training_state.assert_close(variables, expected, weights=FINAL_WEIGHTS, first_moments=SLOTS)


def largest_difference(actual, expected) -> float:
    return float(np.max(np.abs(np.asarray(actual, np.float64) - np.asarray(expected, np.float64))))
