"""Batches of any length go through one trace and give the sums of padded ones; predictions keep
the set's order.
"""

import json
import math
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
VALUES *= np.arange(40) < np.array(LENGTHS)[:, None, None]  # padding adds nothing
SQUARES = [float(np.sum(values**2)) for values in VALUES]


class SquaringStep:
    """Sums the squares of its part of a batch, and notes each trace."""

    sum_names = ("loss",)

    def __init__(self):
        self.objective, self.seen_shapes = self, []

    def update(self, features):
        self.seen_shapes.append(features["x"].shape.as_list())
        return {"loss": tf.reduce_sum(features["x"] ** 2)}


class Given:
    """A source of given batches of their own lengths."""

    def __init__(self, strategy):
        self._strategy = strategy
        batches = ({"x": batch[:, :length]} for batch, length in zip(VALUES, LENGTHS, strict=True))
        dataset = tf.data.Dataset.from_generator(
            lambda: batches,
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
    run, given = compiled_steps(strategy, step), Given(strategy)
    sums = [run(given, num_steps)["loss"] for num_steps in (2, 3)]
    shapes = list(step.seen_shapes)
    with mock.patch.object(strategy, "reduce", wraps=strategy.reduce) as reduce:
        padded = run(split_over_replicas(strategy, {"x": tf.constant(VALUES)}), len(LENGTHS))[
            "loss"
        ]
    assert reduce.call_count == 1, "once a loop, as it is traced"
    of_steps = [
        run(split_over_replicas(strategy, {"x": tf.constant(values[None])}), 1)["loss"]
        for values in VALUES
    ]
    assert padded == math.fsum(of_steps), "whatever the number of steps in a call"
    return sums, padded, shapes


def test_batches_of_any_length_are_traced_once():
    sums, padded, shapes = sums_and_shapes(tf.distribute.get_strategy())
    np.testing.assert_allclose(
        sums,
        [sum(SQUARES[:2]), sum(SQUARES[2:])],
        rtol=1e-5,
    )
    np.testing.assert_allclose(padded, sum(SQUARES), rtol=1e-5)
    assert shapes == [[4, None]]


def test_an_update_may_have_several_batches():
    step, strategy = SquaringStep(), tf.distribute.get_strategy()
    given = Given(strategy)
    given.next_batch = lambda next_batch=given.next_batch: {"x": next_batch()["x"][:, :8]}
    found = [
        compiled_steps(strategy, step, num_batches)(given, 1)["loss"] for num_batches in (2, 3)
    ]
    expected = [np.sum(VALUES[rows, :, :8] ** 2) for rows in (slice(2), slice(2, 5))]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert step.seen_shapes == [[8, None], [12, None]], "one step with all of them"


def test_so_they_are_on_several_replicas():
    ran = run_python(
        "-c",
        "from tests.training.test_loop import print_on_two_replicas as run; run()",
    )
    sums, padded, shapes = json.loads(ran.stdout.splitlines()[-1])
    np.testing.assert_allclose(
        sums,
        [sum(SQUARES[:2]), sum(SQUARES[2:])],
        rtol=1e-5,
    )
    np.testing.assert_allclose(padded, sum(SQUARES), rtol=1e-5)
    assert shapes == [[2, None]] * 2, "one trace, of two replicas"


def print_on_two_replicas():
    """Prints what `sums_and_shapes` returns."""
    strategy = make_strategy(DistributionOptions(distribution_strategy="mirrored", num_devices=2))
    print(json.dumps(sums_and_shapes(strategy)))


def stops_of(
    first_step: int, num_train_steps: int, **flags
) -> tuple[list[int], list[int], list[int]]:
    """The steps at which a training logs and saves, and the number of updates in each call into
    TensorFlow.
    """
    given = {
        "steps_per_loop": 10,
        "log_every_steps": 100,
        "save_every_steps": (1000,),
    } | flags
    stops, step, calls, steps = Stops(first_step, num_train_steps, **given), first_step, [], []
    while step < num_train_steps:
        calls.append(stops.next_count(step))
        step += calls[-1]
        steps.append(step)
    assert step == num_train_steps
    return list(filter(stops.logs_at, steps)), list(filter(stops.saves_at, steps)), calls


def test_the_first_progress_line_comes_after_ten_updates():
    assert stops_of(0, 250) == ([10, 100, 200, 250], [250], [1, 9, *[10] * 24])
    assert stops_of(105, 230, steps_per_loop=100) == ([115, 200, 230], [230], [1, 9, 85, 30])
    assert stops_of(0, 7) == ([7], [7], [1, 6])
    assert stops_of(0, 4, log_every_steps=2) == ([2, 4], [4], [1, 1, 2])


def test_no_call_crosses_a_checkpoint_or_an_evaluation():
    logs, saves, calls = stops_of(
        0,
        50,
        steps_per_loop=50,
        save_every_steps=(20, 15),
    )
    assert (logs, saves) == ([10, 50], [15, 20, 30, 40, 45, 50])
    assert calls == [1, 9, 5, 5, 10, 10, 5, 5]


SET_LENGTHS = np.random.default_rng(2).integers(1, 30, 23)


@pytest.mark.parametrize(
    ("batch_size", "pad_to_longest", "on_tpu", "sizes"),
    [
        (4, True, False, {4, 3}),
        (50, True, False, {23}),
        (10, False, False, {10, 3}),
        # Which compiles once: the last batch is filled with copies of an example.
        (10, False, True, {10}),
    ],
)
def test_every_example_gets_its_own_answer(monkeypatch, batch_size, pad_to_longest, on_tpu, sizes):
    seen, seen_sizes = [], set()

    class Encoded:
        lengths = SET_LENGTHS

        def features(self, rows, length):
            seen.append(length)
            seen_sizes.add(len(rows))
            return {
                "row": rows,
                "mask": (np.arange(length) < SET_LENGTHS[rows][:, None]).astype(np.float32),
            }

    def outputs(batch):
        pair = tf.stack(
            [batch["row"], batch["row"] * 2],
            axis=1,
        )
        return {
            "sum": tf.reduce_sum(batch["mask"], axis=1),
            "pair": pair,
            "mask": batch["mask"],
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
