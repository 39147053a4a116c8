"""Masks of many sequences: how many, where, in whole words and spans, and what replaces the tokens."""

import numpy as np
import pytest

from official_bert.data.corpus import bulk_masking, masking, streams


def test_the_numbers_of_predictions_are_those_of_the_slow_function():
    lengths = np.arange(3, 513)
    for share, most in ((0.15, 20), (0.15, 76), (0.3, 1000), (0.0, 5)):
        expected = [masking.num_predictions(int(length), share, most) for length in lengths]
        assert bulk_masking.num_predictions(lengths, share, most).tolist() == expected


@pytest.mark.parametrize("length", [9, 512, 600])
def test_positions_are_equally_likely_candidates_in_increasing_order(length):
    rows = 40_000 if length == 9 else 3_000
    candidates = np.ones((rows, length), bool)
    candidates[:, [0, 4, length - 1]] = False
    positions, is_drawn = bulk_masking.draw_positions(
        candidates, np.full(rows, 2), streams.stream(3, np.arange(rows)), 3
    )
    assert is_drawn.tolist() == [[True, True, False]] * rows
    assert (positions[:, 0] < positions[:, 1]).all()
    assert not positions[:, 2].any()
    counts = np.bincount(positions[:, :2].ravel(), minlength=length)
    assert not counts[[0, 4, length - 1]].any()
    expected = 2 * rows / (length - 3)
    drawn = np.delete(counts, [0, 4, length - 1])
    assert abs(drawn - expected).max() < 5 * np.sqrt(expected)


def test_fewer_candidates_than_wanted_are_all_drawn():
    candidates = np.array([[False, True, False, True, False]])
    positions, is_drawn = bulk_masking.draw_positions(candidates, np.array([4]), streams.stream(1), 7)
    assert positions.tolist() == [[1, 3, 0, 0, 0, 0, 0]]
    assert is_drawn.tolist() == [[True, True, False, False, False, False, False]]


def test_units_are_drawn_whole_and_one_that_does_not_fit_is_skipped():
    #            [CLS] a  aa  aaa  b  [SEP] c  cc [SEP]: units of 3, 1 and 2 positions
    candidates = np.array([[0, 1, 1, 1, 1, 0, 1, 1, 0]], bool)
    starts = np.array([[0, 1, 0, 0, 1, 0, 1, 0, 0]], bool)
    rows = 6_000
    keys = streams.stream(4, np.arange(rows))
    found = {}
    for wanted in (1, 2, 3, 4):
        positions, is_drawn = bulk_masking.draw_units(
            np.repeat(starts, rows, 0), np.repeat(candidates, rows, 0), np.full(rows, wanted), keys, 5
        )
        drawn = [tuple(row[held].tolist()) for row, held in zip(positions, is_drawn, strict=True)]
        found[wanted] = {one: drawn.count(one) / rows for one in set(drawn)}
    assert found[1] == {(4,): 1.0}
    # The three units in random order, each taken while it fits.
    a, b, c = (1, 2, 3), (4,), (6, 7)
    assert found[2] == pytest.approx({b: 1 / 2, c: 1 / 2}, abs=0.03)
    assert found[3] == pytest.approx({a: 1 / 3, b + c: 2 / 3}, abs=0.03)
    assert found[4] == pytest.approx({(*a, *b): 1 / 2, b + c: 1 / 2}, abs=0.03)


def test_units_in_long_rows_are_those_of_a_plain_loop():
    rng = np.random.default_rng(5)
    rows, length = 200, 70
    candidates = np.arange(length) < rng.integers(5, length, rows)[:, None]
    candidates[:, 0] = False
    starts = candidates & (rng.random((rows, length)) < 0.6)
    starts[:, 1] = True
    wanted = rng.integers(1, 12, rows)
    keys = streams.stream(8, np.arange(rows))
    positions, is_drawn = bulk_masking.draw_units(starts, candidates, wanted, keys, 11)
    for row in range(rows):
        units = np.split(np.flatnonzero(candidates[row]), np.flatnonzero(starts[row][candidates[row]])[1:])
        drawn = set(positions[row][is_drawn[row]].tolist())
        taken = [unit for unit in units if drawn.issuperset(unit.tolist())]
        assert sum(map(len, taken)) == len(drawn) <= wanted[row]  # whole units only
        room = wanted[row] - len(drawn)
        assert all(len(unit) > room for unit in units if not drawn.issuperset(unit.tolist()))


def test_spans_have_lengths_in_proportion_to_one_over_n():
    rows, length = 3_000, 60
    words = np.ones((rows, length), bool)
    words[:, 0] = False
    words[:, 2::3] = False  # every second word has two pieces
    starts = bulk_masking.span_starts(words, 3, streams.stream(6, np.arange(rows)))
    assert not (starts & ~words).any()
    assert starts[:, 1].all()
    sizes = np.zeros(4)
    for row in range(rows):
        numbers = np.cumsum(words[row])[starts[row]]
        for size in np.diff(numbers):
            sizes[size] += 1
    expected = np.array([1, 1 / 2, 1 / 3]) / (1 + 1 / 2 + 1 / 3)
    assert sizes[1:] / sizes.sum() == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(("mask_rate", "random_rate"), [(0.8, 0.1), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0)])
def test_tokens_are_replaced_at_their_rates(mask_rate, random_rate):
    tokens = np.full((5_000, 20), 7)
    word_ids = np.array([3, 5, 9, 11])
    found = bulk_masking.draw_replacements(
        tokens, streams.stream(2, np.arange(5_000)), 1, word_ids, mask_rate, random_rate
    )
    shares = np.bincount(found.ravel(), minlength=12) / found.size
    expected = np.zeros(12)
    expected[1], expected[7], expected[word_ids] = mask_rate, 1 - mask_rate - random_rate, random_rate / 4
    assert (abs(shares - expected) <= 4 * np.sqrt(expected * (1 - expected) / found.size) + 1e-12).all()
