"""Twelve updates equal the original's in losses, final weights and slots, also when resumed from
its checkpoint.
"""

import itertools
import json
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from official_bert.optimization import AdamWeightDecayOptimizer
from official_bert.options.shared import DistributionOptions
from official_bert.tasks.pretraining.objective import PretrainingObjective
from official_bert.training import step as step_module
from official_bert.training.distribution import make_strategy
from official_bert.training.step import TrainingStep
from tests.golden_model import (
    MODELS,
    TRAINING_LOSSES,
    assert_state_as_recorded,
    largest_difference,
    load_batch,
    load_pretrainer,
    named_weights,
    schedule_of,
    steps_of,
)
from tests.scripts import run_python
from tests.shared import GOLDEN, in_test_long

pytestmark = pytest.mark.usefixtures("with_grappler")
GELU = GOLDEN / "model_gelu"
# Of the model, whole batches or micro-batches, and compilation: each value is in one of the two.
CORNERS = [
    ("model_gelu", True, True),
    ("model_relu16types", False, False),
]
ALL_CASES = itertools.product(MODELS, (False, True), (False, True))
OTHER_CASES = [case for case in ALL_CASES if case not in CORNERS]


class Run(NamedTuple):
    """A recorded training run that can be repeated; it cycles through its batches."""

    # From (batches stacked [steps, B, ...], number of steps) to the objective's sums.
    updates: Callable
    batches: list
    settings: dict  # of the recording
    variables: dict  # weights, optimizer slots and the step count, by name

    def losses(self, count: int) -> list[float]:
        """Makes `count` updates, and returns the loss before each of them."""
        return [self.several(1) for _ in range(count)]

    def several(self, count: int) -> float:
        """Makes `count` updates in one call into TensorFlow, and returns the sum of their
        losses.
        """
        return self.sums(count)["loss"]

    def sums(self, count: int) -> dict[str, float]:
        """Makes `count` updates in one call into TensorFlow, and returns all their sums."""
        first = int(self.variables["global_step"])
        batches = self.next_batches(first, count)
        stacked = {}
        for name in batches[0]:
            values = np.stack([batch[name] for batch in batches])
            stacked[name] = tf.constant(values)
        return self.updates(stacked, count)

    def next_batches(self, first_step: int, count: int) -> list:
        """Returns the batches of `count` updates from a step on."""
        steps = range(first_step, first_step + count)
        return [self.batches[step % len(self.batches)] for step in steps]


def prepare(folder, checkpoint, **step_options) -> Run:
    settings = json.loads((folder / "training.json").read_text())
    pretrainer = load_pretrainer(folder, checkpoint)
    weights = dict(named_weights(pretrainer))
    batches = [load_batch(folder, kind) for kind in settings["batches"]]
    objective = PretrainingObjective(pretrainer, batch_size=len(batches[0]["input_ids"]))
    updates, optimizer = steps_of(
        objective,
        weights,
        schedule_of(settings),
        **step_options,
    )
    variables = weights | optimizer.slots | {"global_step": optimizer.global_step}
    return Run(updates, batches, settings, variables)


@pytest.mark.parametrize(
    ("name", "in_micro_batches", "jit_compile"),
    [*CORNERS, *in_test_long(*OTHER_CASES)],
)
def test_the_whole_run_equals_the_originals(name, in_micro_batches, jit_compile):
    """Micro-batches have unequal numbers of predictions; one batch has a single prediction, and
    one has none.
    """
    folder = GOLDEN / name
    num_micro_batches = 1
    if in_micro_batches:
        num_micro_batches = {"model_gelu": 2, "model_relu16types": 3}[name]
    run = prepare(
        folder,
        "bert_model.ckpt",
        jit_compile=jit_compile,
        num_micro_batches=num_micro_batches,
    )
    has_unequal_parts = False
    for batch in run.batches:
        parts = batch["masked_lm_weights"].reshape(num_micro_batches, -1)
        if len(set(parts.sum(1))) > 1:
            has_unequal_parts = True
    assert has_unequal_parts == in_micro_batches
    recorded = np.load(folder / "training.npz")
    losses = run.losses(run.settings["steps"])
    assert largest_difference(losses, recorded["losses"]) <= TRAINING_LOSSES
    assert_state_as_recorded(run.variables, recorded)


@pytest.mark.parametrize(
    "name",
    ["model_gelu", *in_test_long("model_relu16types")],
)
def test_going_on_from_the_half_of_the_originals_run(name):
    """With all the steps that are left in one call into TensorFlow; tokens are counted without
    padding.
    """
    folder = GOLDEN / name
    (index,) = folder.glob("model.ckpt-*.index")
    run = prepare(folder, index.stem)
    reader = tf.train.load_checkpoint(str(index.with_suffix("")))
    for name, variable in run.variables.items():
        variable.assign(reader.get_tensor(name))
    half = int(reader.get_tensor("global_step"))
    assert 0 < half < run.settings["steps"]

    recorded = np.load(folder / "training.npz")
    count = run.settings["steps"] - half
    sums = run.sums(count)
    assert sums["loss"] == pytest.approx(
        sum(recorded["losses"][half:]),
        abs=count * TRAINING_LOSSES,
    )
    assert_state_as_recorded(run.variables, recorded)
    masks = [batch["input_mask"] for batch in run.next_batches(half, count)]
    assert 0 < sums["tokens"] == np.sum(masks) < np.size(masks)


@pytest.mark.parametrize("factor", [0.0, 0.9])
def test_tolerances_catch_slots_that_are_zero_or_a_tenth_too_small(factor):
    """A tenth is what beta_2 = 0.9991 instead of 0.999 takes from a second moment."""
    recorded = dict(np.load(GELU / "training.npz"))
    variables = {name: value for name, value in recorded.items() if name != "losses"}
    assert_state_as_recorded(variables, recorded)
    slots = [name for name in variables if name.endswith(("adam_m", "adam_v"))]
    for name in slots:
        # The gradient of a key's bias is 0 but for rounding, and so are its slots.
        if "self/key/bias" in name:
            continue
        changed = variables | {name: factor * variables[name]}
        with pytest.raises(AssertionError, match=name):
            assert_state_as_recorded(changed, recorded)


class Chain:
    """An objective: the sum of all outputs of four products one after the other."""

    sum_names = ("loss",)

    def __init__(self, weights):
        self.weights = weights

    def totals(self, features):
        return {"count": tf.constant(1.0)}

    def loss(self, features, totals, dropout_seed):
        x = features["x"]
        for weight in self.weights:
            x = tf.tanh(x @ weight)
        loss = tf.reduce_sum(x) / totals["count"]
        return loss, {"loss": loss}


SIZES = (3, 5, 6, 7, 8)  # of the layers, whose products have sizes of their own
# By each replica.
SENT = [
    [1.0 + 2.0**-7 + 2.0**-10, 0.0],
    [2.0**-9, 1.0],
]


def print_all_reduces():
    """Prints for each type the all-reduces of one replica's step, and the sum of SENT."""
    options = DistributionOptions(distribution_strategy="mirrored", num_devices=2)
    strategy = make_strategy(options)
    for dtype in ("float32", "bfloat16"):
        print(json.dumps(all_reduces_of(strategy, dtype)))


def all_reduces_of(strategy, dtype: str) -> list:
    third_layer_bytes = tf.as_dtype(dtype).size * SIZES[2] * SIZES[3]
    step_module._BUCKET = tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=third_layer_bytes - 1
    )
    with strategy.scope():
        weights = [tf.Variable(tf.fill(pair, 0.1)) for pair in itertools.pairwise(SIZES)]
        optimizer = AdamWeightDecayOptimizer(1e-3)
        optimizer.build([(f"w/{k}", weight) for k, weight in enumerate(weights)])
        step = TrainingStep(
            Chain(weights),
            weights,
            optimizer,
            run_seed=1,
            all_reduce_dtype=dtype,
        )
    features = {
        "x": tf.ones([2, 3]),
        "input_ids": tf.ones([2, 3], tf.int32),
    }
    update = tf.function(
        lambda: strategy.run(step.update, args=(features,)),
        autograph=False,
    )
    operations = update.get_concrete_function().graph.get_operations()
    collectives = [one for one in operations if "CollectiveReduce" in one.type]
    reduces = [one for one in collectives if one.device.endswith("CPU:0")]
    sent = []
    products = []
    waiting = []
    for one in reduces:
        tensor = one.inputs[0]
        needed = ancestors(one)
        sent.append([tensor.shape[0], tensor.dtype.name])
        products.append(sum(other.type == "MatMul" for other in needed))
        waiting.append(sum(one in ancestors(other) for other in reduces))

    def reduced():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return step._reduced([tf.constant(SENT)[replica], None])[0]

    sum_of_replicas = tf.function(lambda: strategy.run(reduced), autograph=False)()
    added = strategy.experimental_local_results(sum_of_replicas)
    return [
        sent,
        products,
        waiting,
        [one.numpy().tolist() for one in added],
    ]


def ancestors(operation) -> set:
    """The operations that this one needs the results of."""
    needed = set()
    left = [operation]
    while left:
        new = {tensor.op for tensor in left.pop().inputs} - needed
        needed |= new
        left += new
    return needed


def test_gradients_are_reduced_in_buckets_while_the_backward_pass_runs():
    ran = run_python("-c", "from tests.training.test_step import print_all_reduces as run; run()")
    sums = {
        "float32": [SENT[0][0] + SENT[1][0], 1.0],
        "bfloat16": [1.0 + 2.0**-7, 1.0],
    }
    lines = ran.stdout.splitlines()[-2:]
    for line, (dtype, added) in zip(lines, sums.items(), strict=True):
        sent, products, waiting, found = json.loads(line)
        # The total of the loss; the last layer; the third one; the second and the first one, which
        # are small.
        assert sent == [
            [1, "float32"],
            [56, dtype],
            [42, dtype],
            [30 + 15, dtype],
        ]
        # Four products forward; backward each layer needs another one, and one more of the layer
        # behind it.
        assert products == [0, 5, 6, 9]
        assert waiting == [3, 0, 0, 0], "no bucket waits for the gradients of another one"
        assert found == [added, added]
