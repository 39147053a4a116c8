"""The masks of dropout: their hash against numpy, their statistics, and the parts of a batch."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal

from official_bert.modeling.dropout_masks import dropout_mask, part_seed

SEED = tf.constant([5, -7])


def draw(shape, rate=0.5, seed=SEED, index=0) -> np.ndarray:
    return dropout_mask(tf.zeros(shape), rate, seed, index).numpy()


def mix(bits: np.ndarray) -> np.ndarray:
    """Mixes words of 32 bits."""
    bits = bits ^ (bits >> np.uint32(16))
    bits = bits * np.uint32(0x7FEB352D)
    bits = bits ^ (bits >> np.uint32(15))
    bits = bits * np.uint32(0x846CA68B)
    return bits ^ (bits >> np.uint32(16))


@pytest.mark.parametrize(
    ("shape", "first_row"),
    [
        pytest.param((6, 5), 0, id="matrix"),
        pytest.param((2, 3, 4, 7), 0, id="attention"),
        pytest.param((6, 5), 12, id="part of a batch"),
    ],
)
def test_a_decision_is_a_hash_of_row_and_column(shape, first_row):
    seed, index, rate = SEED, 3, 0.3
    if first_row:
        # The part has two examples of three rows each, and is the third of its size.
        seed = part_seed(SEED, tf.constant(4), tf.constant(2))
    first_word, second_word = np.array([5, -7], np.int32).view(np.uint32)[:, None]
    dropout_word = np.array([index], np.uint32) * np.uint32(0x9E3779B1)
    key = mix(first_word + dropout_word)
    row_key = mix(key ^ second_word)
    column_key = mix(key + second_word + np.uint32(0x85EBCA6B))

    num_rows = np.prod(shape[:-1])
    rows = np.arange(first_row, first_row + num_rows, dtype=np.uint32)
    columns = np.arange(shape[-1], dtype=np.uint32)
    bits = mix(rows ^ row_key)[:, None] ^ mix(columns ^ column_key)
    expected = mix(bits) >= round(rate * 2**32)
    mask = draw(shape, rate, seed, index)
    assert_array_equal(mask, expected.reshape(shape))


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(4096, 127), (8, 4, 128, 128), (300000, 2), (2, 300000)])
def test_the_share_of_zeros_is_the_rate(shape, rate):
    zero_share = 1 - np.mean(draw(shape, rate))
    standard_error = np.sqrt(rate * (1 - rate) / np.prod(shape))
    assert abs(zero_share - rate) <= 4 * standard_error


def test_masks_of_other_seeds_and_dropouts_are_unrelated():
    shape = (4000, 64)
    seeds = ([5, 7], [5, 8], [6, 7], [7, 5])
    masks = [
        draw(shape, seed=tf.constant(seed), index=index)
        for seed, index in itertools.product(seeds, (0, 1, 2))
    ]
    for first, second in itertools.combinations(masks, 2):
        assert_unrelated(first, second)


def test_rows_and_columns_of_a_mask_are_unrelated():
    mask = draw((4096, 256))
    for shift in (1, 2, 3, 4, 8, 64, 128):
        assert_unrelated(mask[shift:], mask[:-shift])
        assert_unrelated(mask[:, shift:], mask[:, :-shift])
    # The number of zeros in a row, and in a column, varies as that of independent decisions.
    for axis in (0, 1):
        count = mask.shape[axis]
        variance = np.var(np.sum(mask, axis=axis))
        assert variance == pytest.approx(count / 4, rel=0.35 if axis == 0 else 0.1)


def test_four_corners_of_a_rectangle_are_unrelated():
    """Rows and columns have one word each, so a weak hash would couple the corners."""
    mask = draw((4096, 256))
    rows, columns = mask.reshape(2, 2048, 256), slice(0, 128)
    top = rows[0][:, columns] ^ rows[0][:, 128:]
    bottom = rows[1][:, columns] ^ rows[1][:, 128:]
    assert_unrelated(top, bottom)


def assert_unrelated(first: np.ndarray, second: np.ndarray):
    equal_share = np.mean(first == second)
    standard_error = 0.5 / np.sqrt(first.size)
    assert abs(equal_share - 0.5) < 5 * standard_error


@pytest.mark.parametrize("shape", [(12, 5), (12, 2, 3, 5), (24, 5)])
def test_parts_of_a_batch_have_the_masks_of_the_whole_batch(shape):
    whole = draw(shape)
    num_examples, num_parts = 12, 3
    part_size = num_examples // num_parts
    parts = []
    for index in range(num_parts):
        seed = part_seed(SEED, tf.constant(index * part_size), tf.constant(part_size))
        parts.append(draw((shape[0] // num_parts, *shape[1:]), seed=seed))
    assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("shape", [(0, 5), (4, 0), (2, 3, 0, 0)])
def test_a_mask_may_be_empty(shape):
    assert draw(shape).shape == shape


def test_a_mask_may_have_more_values_than_int32_counts():
    @tf.function
    def count_rows():
        x = tf.zeros([2**15, 2, 2**15])
        return dropout_mask(x, 0.5, SEED, 0)

    mask = count_rows.get_concrete_function().outputs[0]
    assert mask.shape == (2**15, 2, 2**15)


def test_xla_draws_the_same_mask():
    x = tf.zeros([64, 33])
    compiled = tf.function(dropout_mask, jit_compile=True)
    assert_array_equal(compiled(x, 0.3, SEED, tf.constant(2)), draw(x.shape, 0.3, index=2))
