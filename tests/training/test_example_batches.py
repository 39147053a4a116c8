"""The order of training examples, what batches hold, and where a restored run goes on."""

import collections
import itertools
import os
import subprocess
import sys

import numpy as np
import tensorflow as tf

from official_bert.training.batches import (
    BATCHES_AHEAD,
    ExampleBatches,
    example_order,
    padded_length,
    take_turns,
)
from tests.shared import ROOT


def first(count, *arguments):
    return list(itertools.islice(example_order(*arguments), count))


def test_the_whole_set_is_shuffled_anew_in_each_pass():
    order = first(30, 10, 3, 0)
    passes = [order[:10], order[10:20], order[20:]]
    for one in passes:
        assert sorted(one) == list(range(10))
    assert passes[0] != passes[1] != passes[2]
    assert order == first(30, 10, 3, 0)
    assert order != first(30, 10, 4, 0)


def test_turns_are_spread_evenly():
    assert list(itertools.islice(take_turns([3, 1]), 8)) == [0, 0, 1, 0, 0, 0, 1, 0]
    assert list(itertools.islice(take_turns([1, 1, 1]), 5)) == [0, 1, 2, 0, 1]


def test_a_buffer_mixes_neighbours_only():
    order = first(400, 1000, 3, 20)
    # The k-th drawn can be at most the (k + 20)-th of the file, as in a buffer of 20.
    assert all(number < place + 20 for place, number in enumerate(order))
    assert len(set(order)) == 400, "within the first pass nothing comes twice"
    assert order != sorted(order)


def test_a_buffer_larger_than_the_set_still_gives_every_example_its_share():
    counts = collections.Counter(first(8000, 8, 5, 100))
    assert set(counts) == set(range(8))
    assert max(counts.values()) - min(counts.values()) <= 100


class Rows:
    """A set whose features are the numbers of the examples, and as many zeros as they are padded
    to.
    """

    lengths = np.arange(1, 41)

    def features(self, rows, length):
        return {"row": rows, "padded": np.zeros((len(rows), length))}


LENGTHS = Rows.lengths


def batches(**changes):
    settings = {"buffer_size": 0, "max_length": 40, "pad_to_longest": True} | changes
    return ExampleBatches(Rows(), tf.distribute.get_strategy(), 4, 7, **settings)


def test_the_key_is_of_the_content_in_its_order():
    """Other values or labels of the same lengths are other data; what another model computes is
    not data.
    """

    class Labelled(Rows):
        lengths = np.full(2500, 8)  # several parts of a digest
        computed_features = ("computed",)

        def __init__(self, labels, computed=0.0):
            self.labels = labels
            self.computed = computed

        def features(self, rows, length):
            outputs = {"computed": np.full(len(rows), self.computed)}
            return super().features(rows, length) | outputs | {"label_ids": self.labels[rows]}

    def key(*content, batch_size=4):
        settings = {"buffer_size": 0, "max_length": 40, "pad_to_longest": True}
        return ExampleBatches(
            Labelled(*content),
            tf.distribute.get_strategy(),
            batch_size,
            7,
            **settings,
        ).key

    labels = np.arange(2500) % 3
    assert key(labels) == key(labels.copy(), 1.0)
    others = [
        np.roll(labels, 1),
        labels[::-1],
        labels + 1,
        labels.astype(np.float32),
        np.append(labels[:-1], 7),
    ]
    keys = {
        key(labels),
        key(labels, batch_size=5),
        *map(key, others),
    }
    assert len(keys) == 2 + len(others)


def split_rows(batches, num_steps):
    return np.stack([batches.next_batch()["row"] for _ in range(num_steps)])


def test_batches_hold_the_same_examples_however_they_are_padded():
    longest = batches()
    fixed = batches(pad_to_longest=False)
    assert longest.key == fixed.key != batches(buffer_size=5).key
    padded_lengths = [padded_length(length, 20) for length in (1, 8, 9, 16, 17, 20)]
    assert padded_lengths == [8, 8, 16, 16, 20, 20]
    for _ in range(5):
        short = longest.next_batch()
        full = fixed.next_batch()
        np.testing.assert_array_equal(short["row"], full["row"])
        longest_length = LENGTHS[short["row"]].max()
        assert short["padded"].shape == (4, padded_length(longest_length, 40))
        assert full["padded"].shape == (4, 40)


def test_a_restored_position_goes_on_with_the_next_example(tmp_path):
    for buffer_size in (0, 10):
        drawn = split_rows(batches(buffer_size=buffer_size), 20)
        stopped = batches(buffer_size=buffer_size)
        split_rows(stopped, 14)  # and two more are read ahead
        stopped.have_run(12)
        path = stopped.state.write(str(tmp_path / f"state-{buffer_size}"))
        resumed = batches(buffer_size=buffer_size)
        resumed.state.read(path).assert_consumed()
        np.testing.assert_array_equal(split_rows(resumed, 8), drawn[12:])


# The first handler that is registered runs last, when nothing calls Python any more.
AT_EXIT = """
import atexit, time
calls = []
atexit.register(lambda: print("calls that began and ended:", calls.count("begin"), calls.count("end")))
from tests.training import test_example_batches

class SlowRows(test_example_batches.Rows):
    def features(self, rows, length):
        calls.append("begin")
        time.sleep(0.3)
        calls.append("end")
        return super().features(rows, length)

test_example_batches.Rows = SlowRows
batches = test_example_batches.batches()
batches.next_batch()
"""


def test_a_process_that_has_trained_ends_without_a_message():
    """TensorFlow deletes the iterator after the end of Python, and would wait for a call that
    never returns.
    """
    command = [sys.executable, "-c", AT_EXIT]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "0"}
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert "Python interpreter state" not in ran.stderr
    # One call digests the set, one finds the shapes; after the first batch, TensorFlow reads ahead.
    num_calls = 1 + 1 + 1 + BATCHES_AHEAD
    assert ran.stdout == f"calls that began and ended: {num_calls} {num_calls}\n"
