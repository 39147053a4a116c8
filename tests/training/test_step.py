"""Twelve updates equal the original's in losses, final weights and slots, also when resumed from its checkpoint."""

import functools
import json
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from official_bert.optimization import EXCLUDED_FROM_DECAY, AdamWeightDecayOptimizer, WarmupLinearDecay
from official_bert.tasks.pretraining.objective import PretrainingObjective
from official_bert.training.loop import compiled_steps
from official_bert.training.step import TrainingStep
from tests import training_state
from tests.golden_model import (
    TRAINING_LOSSES,
    assert_state_as_recorded,
    golden,  # noqa: F401  a fixture
    largest_difference,
    load_batch,
    load_pretrainer,
    named_weights,
)
from tests.shared import GOLDEN

GELU = GOLDEN / "model_gelu"


class Run(NamedTuple):
    """A recorded training run that can be repeated.

    Attributes:
        updates: a function from (batches stacked [steps, B, ...], number of steps) to the objective's sums.
        batches: the batches, which the run cycles through.
        settings: the settings of the recording.
        variables: weights, optimizer slots and the step count, by name.
    """

    updates: Callable
    batches: list
    settings: dict
    variables: dict

    def losses(self, count: int) -> list[float]:
        """Makes `count` updates, and returns the loss before each of them."""
        return [self.several(1) for _ in range(count)]

    def several(self, count: int) -> float:
        """Makes `count` updates in one call into TensorFlow, and returns the sum of their losses."""
        first = int(self.variables["global_step"])
        drawn = [self.batches[(first + k) % len(self.batches)] for k in range(count)]
        stacked = {name: tf.constant(np.stack([batch[name] for batch in drawn])) for name in drawn[0]}
        return self.updates(stacked, count)["loss"]


def prepare(folder, checkpoint, **step_options) -> Run:
    settings = json.loads((folder / "training.json").read_text())
    pretrainer = load_pretrainer(folder, checkpoint)
    rate = WarmupLinearDecay(settings["init_lr"], settings["num_train_steps"], settings["num_warmup_steps"])
    optimizer = AdamWeightDecayOptimizer(rate, weight_decay_rate=0.01, exclude_from_weight_decay=EXCLUDED_FROM_DECAY)
    pairs = named_weights(pretrainer)
    optimizer.build(pairs)
    batches = [load_batch(folder, kind) for kind in settings["batches"]]
    objective = PretrainingObjective(pretrainer, batch_size=len(batches[0]["input_ids"]))
    step = TrainingStep(objective, [v for _, v in pairs], optimizer, run_seed=1, **step_options)
    variables = dict(pairs) | optimizer.slots | {"global_step": optimizer.global_step}
    return Run(compiled_steps(tf.distribute.get_strategy(), step), batches, settings, variables)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_whole_run_equals_the_originals(golden, jit_compile):  # noqa: F811
    run = prepare(golden, "bert_model.ckpt", jit_compile=jit_compile)
    recorded = np.load(golden / "training.npz")
    losses = run.losses(run.settings["steps"])
    assert largest_difference(losses, recorded["losses"]) <= TRAINING_LOSSES
    assert_state_as_recorded(run.variables, recorded)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_micro_batches_give_the_updates_of_the_batch(golden, jit_compile):  # noqa: F811
    """They have unequal numbers of predictions, one batch has a single prediction, and one has none."""
    num_micro_batches = {"model_gelu": 2, "model_relu16types": 3}[golden.name]
    run = prepare(golden, "bert_model.ckpt", jit_compile=jit_compile, num_micro_batches=num_micro_batches)
    predictions = [batch["masked_lm_weights"].reshape(num_micro_batches, -1).sum(1) for batch in run.batches]
    assert any(len(set(of_each)) > 1 for of_each in predictions)
    losses = run.losses(run.settings["steps"])
    recorded = np.load(golden / "training.npz")
    largest = largest_difference(losses, recorded["losses"])
    print(f"{golden.name}: predictions of the micro-batches {predictions}; {len(losses)} losses within {largest:.2g}")
    assert largest_difference(losses, recorded["losses"]) <= TRAINING_LOSSES
    assert_state_as_recorded(run.variables, recorded)


def test_going_on_from_the_half_of_the_originals_run(golden):  # noqa: F811
    (index,) = golden.glob("model.ckpt-*.index")
    run = prepare(golden, index.stem)
    reader = tf.train.load_checkpoint(str(index.with_suffix("")))
    for name, variable in run.variables.items():
        variable.assign(reader.get_tensor(name))
    half = int(reader.get_tensor("global_step"))
    assert 0 < half < run.settings["steps"]

    recorded = np.load(golden / "training.npz")
    losses = run.losses(run.settings["steps"] - half)
    assert largest_difference(losses, recorded["losses"][half:]) <= TRAINING_LOSSES
    assert_state_as_recorded(run.variables, recorded)


def test_several_updates_in_one_call_equal_single_ones():
    single, looped = (prepare(GELU, "bert_model.ckpt") for _ in range(2))
    np.testing.assert_allclose(looped.several(5), sum(single.losses(5)), rtol=1e-6)
    assert int(looped.variables["global_step"]) == 5
    training_state.assert_equal(looped.variables, single.variables)


@pytest.mark.parametrize(
    ("constant", "mistake", "first_to_differ"),
    [
        ("EXCLUDED_FROM_DECAY", (), "LayerNorm"),
        ("WarmupLinearDecay", lambda peak, steps, _, real=WarmupLinearDecay: real(peak, steps, 0), "embeddings"),
        ("AdamWeightDecayOptimizer", functools.partial(AdamWeightDecayOptimizer, beta_2=0.9991), "embeddings"),
    ],
)
def test_tolerances_catch(constant, mistake, first_to_differ, monkeypatch):
    """Decay of biases and layer norms, another schedule, another decay of the second moments."""
    monkeypatch.setattr(sys.modules[__name__], constant, mistake)
    run = prepare(GELU, "bert_model.ckpt")
    losses, recorded = run.losses(run.settings["steps"]), np.load(GELU / "training.npz")
    with pytest.raises(AssertionError, match=first_to_differ):
        assert_state_as_recorded(run.variables, recorded)
    if constant == "WarmupLinearDecay":
        assert largest_difference(losses, recorded["losses"]) > TRAINING_LOSSES


@pytest.mark.parametrize("factor", [0.0, 0.9])
def test_tolerances_catch_slots_that_are_zero_or_a_tenth_too_small(factor):
    """A tenth is what beta_2 = 0.9991 instead of 0.999 takes from a second moment."""
    recorded = dict(np.load(GELU / "training.npz"))
    variables = {name: value for name, value in recorded.items() if name != "losses"}
    assert_state_as_recorded(variables, recorded)
    slots = [name for name in variables if name.endswith(("adam_m", "adam_v"))]
    # The gradient of a key's bias is 0 but for rounding, and so are its slots.
    for name in [name for name in slots if "self/key/bias" not in name]:
        with pytest.raises(AssertionError, match=name):
            assert_state_as_recorded(variables | {name: factor * variables[name]}, recorded)
