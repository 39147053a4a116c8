"""What training runs leave, compared: weights and Adam slots, each kind at a tolerance that fits
its size; the input.

Most second moments are below 1e-6, so an absolute tolerance that suits weights would let zeros
pass: they are compared relatively. Some biases (of keys, of SQuAD's head) have a gradient of 0 but
for rounding; what rounding leaves in their second moments, up to 1e-17, agrees in nothing, and
NOISE allows for it.
"""

import itertools
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from official_bert.data.records.pretraining_input import reading_key, training_dataset
from official_bert.data.records.record_files import record_contents
from official_bert.features import Feature
from official_bert.training.batches import RecordBatches
from official_bert.training.starting_point import seed_initial_weights

SECOND_MOMENTS = 2e-3  # relative; beta_2 = 0.9991 instead of 0.999 moves them by a tenth
NOISE = 1e-16


def assert_close(actual: Mapping, expected: Mapping, *, weights: float, first_moments: float):
    """Arrays or tf.Variables by name in a checkpoint agree within absolute tolerances of weights
    and of `adam_m`.
    """
    assert sorted(actual) == sorted(expected)
    for name, value in expected.items():
        absolute, relative = weights, 0.0
        if name.endswith("adam_m"):
            absolute = first_moments
        elif name.endswith("adam_v"):
            absolute, relative = NOISE, SECOND_MOMENTS
        np.testing.assert_allclose(
            np.asarray(actual[name]), value, rtol=relative, atol=absolute, err_msg=name
        )


def assert_equal(actual: Mapping, expected: Mapping):
    """The same variables with the same bits."""
    assert sorted(actual) == sorted(expected)
    for name, value in expected.items():
        assert np.asarray(actual[name]).tobytes() == np.asarray(value).tobytes(), name


def assert_input_is_at(
    prefix: pathlib.Path,
    files: Sequence[str],
    features: Sequence[Feature],
    batch_size: int,
    seed: int,
    num_read: int,
):
    """The saved input of a pre-training run is that of its files and its seed, and goes on after
    `num_read` batches.
    """
    seed_initial_weights(seed)  # which the order of reading follows, too

    def dataset():
        return training_dataset(files, features, batch_size, seed, limits={})

    saved = RecordBatches(dataset(), tf.distribute.get_strategy(), seed=0, key=0)
    saved.state.read(str(prefix)).assert_existing_objects_matched()
    assert int(saved.state.seed) == seed
    assert int(saved.state.key) == reading_key(record_contents(files), features, batch_size)
    for expected in itertools.islice(dataset(), num_read, num_read + 3):
        np.testing.assert_array_equal(saved.next_batch()["input_ids"], expected["input_ids"])
