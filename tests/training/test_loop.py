"""Batches of any length go through one trace and give the sums of padded ones; predictions keep
the set's order.
"""

import json
import math
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from official_bert.options.shared import DistributionOptions
from official_bert.training import loop
from official_bert.training.calls import Stops
from official_bert.training.distribution import make_strategy, split_over_replicas
from official_bert.training.loop import compiled_outputs, compiled_steps, predict
from tests.scripts import run_python

LENGTHS = (8, 24, 16, 8, 40)
VALUES = np.random.default_rng(1).normal(size=(len(LENGTHS), 4, 40)).astype(np.float32)
# Padding adds nothing.
VALUES *= np.arange(40) < np.array(LENGTHS)[:, None, None]
SQUARES = [float(np.sum(values**2)) for values in VALUES]
SQUARES_BY_CALL = [sum(SQUARES[:2]), sum(SQUARES[2:])]


class SquaringStep:
    """Sums the squares of its part of a batch, and notes each trace."""

    sum_names = ("loss",)

    def __init__(self):
        self.objective = self
        self.seen_shapes = []

    def update(self, features):
        self.seen_shapes.append(features["x"].shape.as_list())
        return {"loss": tf.reduce_sum(features["x"] ** 2)}


def fixed_batches():
    """Yields the batches, each without padding."""
    for values, length in zip(VALUES, LENGTHS, strict=True):
        yield {"x": values[:, :length]}


class BatchSource:
    """A source of batches of different lengths."""

    def __init__(self, strategy):
        self._strategy = strategy
        dataset = tf.data.Dataset.from_generator(
            fixed_batches,
            output_signature={"x": tf.TensorSpec([4, None])},
        )
        self._iterator = iter(dataset)

    def next_batch(self):
        return split_over_replicas(
            self._strategy,
            next(self._iterator),
            axis=0,
        )


def sums_and_shapes(strategy):
    """The sums of calls of two and three batches, each of its own length, and of a stack; shapes
    of the traces.
    """
    step = SquaringStep()
    run = compiled_steps(strategy, step)
    source = BatchSource(strategy)
    sums = [run(source, num_steps)["loss"] for num_steps in (2, 3)]
    shapes = list(step.seen_shapes)

    def sum_of_stack(values):
        stack = split_over_replicas(strategy, {"x": tf.constant(values)})
        return run(stack, len(values))["loss"]

    with mock.patch.object(strategy, "reduce", wraps=strategy.reduce) as reduce:
        padded = sum_of_stack(VALUES)
    assert reduce.call_count == 1, "once a loop, as it is traced"
    step_sums = [sum_of_stack(values[None]) for values in VALUES]
    assert padded == math.fsum(step_sums), "whatever the number of steps in a call"
    return sums, padded, shapes


def test_batches_of_any_length_are_traced_once():
    sums, padded, shapes = sums_and_shapes(tf.distribute.get_strategy())
    np.testing.assert_allclose(sums, SQUARES_BY_CALL, rtol=1e-5)
    np.testing.assert_allclose(padded, sum(SQUARES), rtol=1e-5)
    assert shapes == [[4, None]]


def test_an_update_may_have_several_batches():
    step = SquaringStep()
    strategy = tf.distribute.get_strategy()
    source = BatchSource(strategy)
    next_batch = source.next_batch

    def next_short_batch():
        return {"x": next_batch()["x"][:, :8]}

    source.next_batch = next_short_batch
    sums = []
    for num_batches in (2, 3):
        run = compiled_steps(strategy, step, num_batches)
        sums.append(run(source, 1)["loss"])
    short_squares = VALUES[:, :, :8] ** 2
    expected = [np.sum(short_squares[:2]), np.sum(short_squares[2:])]
    np.testing.assert_allclose(sums, expected, rtol=1e-5)
    assert step.seen_shapes == [[8, None], [12, None]], "one step with all of them"


def test_so_they_are_on_several_replicas():
    ran = run_python(
        "-c",
        "from tests.training.test_loop import print_on_two_replicas as run; run()",
    )
    sums, padded, shapes = json.loads(ran.stdout.splitlines()[-1])
    np.testing.assert_allclose(sums, SQUARES_BY_CALL, rtol=1e-5)
    np.testing.assert_allclose(padded, sum(SQUARES), rtol=1e-5)
    assert shapes == [[2, None]] * 2, "one trace, of two replicas"


def print_on_two_replicas():
    """Prints what `sums_and_shapes` returns."""
    options = DistributionOptions(distribution_strategy="mirrored", num_devices=2)
    strategy = make_strategy(options)
    print(json.dumps(sums_and_shapes(strategy)))


class Schedule(NamedTuple):
    """The steps at which a training logs and saves, and the number of updates in each call into
    TensorFlow.
    """

    logs: list[int]
    saves: list[int]
    calls: list[int]


def make_schedule(first_step: int, num_train_steps: int, **flags) -> Schedule:
    defaults = {
        "steps_per_loop": 10,
        "log_every_steps": 100,
        "save_every_steps": (1000,),
    }
    stops = Stops(first_step, num_train_steps, **defaults | flags)
    schedule = Schedule([], [], [])
    step = first_step
    while step < num_train_steps:
        count = stops.next_count(step)
        step += count
        schedule.calls.append(count)
        if stops.logs_at(step):
            schedule.logs.append(step)
        if stops.saves_at(step):
            schedule.saves.append(step)
    assert step == num_train_steps
    return schedule


@pytest.mark.parametrize(
    ("first_step", "num_train_steps", "flags", "expected"),
    [
        pytest.param(
            0,
            250,
            {},
            Schedule(
                logs=[10, 100, 200, 250],
                saves=[250],
                calls=[1, 9, *[10] * 24],
            ),
            id="new run",
        ),
        pytest.param(
            105,
            230,
            {"steps_per_loop": 100},
            Schedule(
                logs=[115, 200, 230],
                saves=[230],
                calls=[1, 9, 85, 30],
            ),
            id="resumed run",
        ),
        pytest.param(
            0,
            7,
            {},
            Schedule(logs=[7], saves=[7], calls=[1, 6]),
            id="run of fewer than ten updates",
        ),
        pytest.param(
            0,
            4,
            {"log_every_steps": 2},
            Schedule(logs=[2, 4], saves=[4], calls=[1, 1, 2]),
            id="frequent progress lines",
        ),
    ],
)
def test_the_first_progress_line_comes_after_ten_updates(
    first_step, num_train_steps, flags, expected
):
    assert make_schedule(first_step, num_train_steps, **flags) == expected


def test_no_call_crosses_a_checkpoint_or_an_evaluation():
    schedule = make_schedule(0, 50, steps_per_loop=50, save_every_steps=(20, 15))
    assert schedule.logs == [10, 50]
    assert schedule.saves == [15, 20, 30, 40, 45, 50]
    assert schedule.calls == [1, 9, 5, 5, 10, 10, 5, 5]


SET_LENGTHS = np.random.default_rng(2).integers(1, 30, 23)


@pytest.mark.parametrize(
    ("batch_size", "pad_to_longest", "on_tpu", "sizes"),
    [
        pytest.param(4, True, False, {4, 3}, id="short batches"),
        pytest.param(50, True, False, {23}, id="one batch"),
        pytest.param(10, False, False, {10, 3}, id="batches of one length"),
        # The step is compiled once: the last batch is filled with copies of an example.
        pytest.param(10, False, True, {10}, id="TPU"),
    ],
)
def test_every_example_gets_its_own_answer(monkeypatch, batch_size, pad_to_longest, on_tpu, sizes):
    seen = []
    seen_sizes = set()

    class Encoded:
        lengths = SET_LENGTHS

        def features(self, rows, length):
            seen.append(length)
            seen_sizes.add(len(rows))
            is_token = np.arange(length) < SET_LENGTHS[rows][:, None]
            return {
                "row": rows,
                "mask": is_token.astype(np.float32),
            }

    def outputs(batch):
        row = batch["row"]
        mask = batch["mask"]
        return {
            "sum": tf.reduce_sum(mask, axis=1),
            "pair": tf.stack([row, row * 2], axis=1),
            "mask": mask,
        }

    monkeypatch.setattr(loop, "is_tpu", lambda strategy: on_tpu)
    strategy = tf.distribute.get_strategy()
    found = predict(
        compiled_outputs(strategy, outputs),
        strategy,
        Encoded(),
        batch_size,
        32,
        pad_to_longest,
    )
    np.testing.assert_array_equal(found["sum"], SET_LENGTHS)
    np.testing.assert_array_equal(
        found["pair"],
        [[k, 2 * k] for k in range(23)],
    )
    np.testing.assert_array_equal(
        found["mask"],
        np.arange(32) < SET_LENGTHS[:, None],
    )
    assert seen_sizes == sizes
    if pad_to_longest:
        assert seen == sorted(seen, reverse=True)
        assert all(length % 8 == 0 for length in seen)
    else:
        assert set(seen) == {32}
