"""Masks of many sequences: how many, where, in whole words and spans; and the streams of numbers
that decide it.
"""

import dataclasses
import hashlib

import numpy as np
import pytest

from official_bert.data.pretraining import exact, masks, random_streams
from official_bert.data.pretraining.masks import DynamicMasks
from official_bert.data.pretraining.settings import InstanceVocabulary, MaskConfig


def test_the_numbers_of_predictions_are_those_of_the_slow_function():
    lengths = np.arange(3, 513)
    for share, most in ((0.15, 20), (0.15, 76), (0.3, 1000), (0.0, 5)):
        expected = [exact.num_predictions(int(length), share, most) for length in lengths]
        assert masks.num_predictions(lengths, share, most).tolist() == expected


@pytest.mark.parametrize("length", [9, 600])
def test_positions_are_equally_likely_candidates_in_increasing_order(length):
    rows = 40_000 if length == 9 else 3_000
    candidates = np.ones((rows, length), bool)
    candidates[:, [0, 4, length - 1]] = False
    positions, is_drawn = masks.draw_positions(
        candidates, np.full(rows, 2), random_streams.stream(3, np.arange(rows)), 3
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
    positions, is_drawn = masks.draw_positions(
        candidates, np.array([4]), random_streams.stream(1), 3
    )
    assert (positions.tolist(), is_drawn.tolist()) == ([[1, 3, 0]], [[True, True, False]])


def test_units_are_drawn_whole_and_one_that_does_not_fit_is_skipped():
    #            [CLS] a  aa  aaa  b  [SEP] c  cc [SEP]: units of 3, 1 and 2 positions
    candidates = np.array([[0, 1, 1, 1, 1, 0, 1, 1, 0]], bool)
    starts = np.array([[0, 1, 0, 0, 1, 0, 1, 0, 0]], bool)
    rows = 6_000
    keys = random_streams.stream(4, np.arange(rows))
    found = {}
    for wanted in (1, 2, 3, 4):
        positions, is_drawn = masks.draw_units(
            np.repeat(starts, rows, 0),
            np.repeat(candidates, rows, 0),
            np.full(rows, wanted),
            keys,
            5,
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
    keys = random_streams.stream(8, np.arange(rows))
    positions, is_drawn = masks.draw_units(starts, candidates, wanted, keys, 11)
    for row in range(rows):
        units = np.split(
            np.flatnonzero(candidates[row]), np.flatnonzero(starts[row][candidates[row]])[1:]
        )
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
    starts = masks.span_starts(words, 3, random_streams.stream(6, np.arange(rows)))
    assert not (starts & ~words).any()
    assert starts[:, 1].all()
    sizes = np.zeros(4)
    for row in range(rows):
        numbers = np.cumsum(words[row])[starts[row]]
        for size in np.diff(numbers):
            sizes[size] += 1
    expected = np.array([1, 1 / 2, 1 / 3]) / (1 + 1 / 2 + 1 / 3)
    assert sizes[1:] / sizes.sum() == pytest.approx(expected, abs=0.01)


CLS, SEP, MASK, PIECES = 0, 1, 2, 40
VOCABULARY = InstanceVocabulary(
    CLS, SEP, MASK, list(range(PIECES)), [piece >= 30 for piece in range(PIECES)]
)
USUAL = MaskConfig(masked_lm_prob=0.15, max_predictions_per_seq=4)


def records(count: int) -> tuple[np.ndarray, np.ndarray]:
    """[CLS] 12 pieces [SEP] pieces [SEP] and padding, of different lengths."""
    draws = np.random.default_rng(1)
    lengths = draws.integers(20, 33, count)
    ids = draws.integers(3, PIECES, (count, 32), np.int32)
    position = np.arange(32)
    ids[:, 0], ids[:, 13] = CLS, SEP
    ids[np.arange(count), lengths - 1] = SEP
    mask = (position < lengths[:, None]).astype(np.int32)
    return ids * mask, mask


def drawn(config=USUAL, seed=5, passes=0, count=4000):
    ids, mask = records(count)
    numbers = np.full(count, passes)
    return ids, mask, *DynamicMasks(VOCABULARY, config, seed)(ids, mask, numbers, np.arange(count))


def test_masks_have_the_shares_of_the_paper_and_labels_are_the_tokens():
    ids, mask, masked, positions, labels, weights = drawn()
    real = weights > 0
    wanted = np.clip(np.rint(mask.sum(axis=1) * 0.15), 1, 4)
    np.testing.assert_array_equal(real.sum(axis=1), wanted)
    rows, columns = real.nonzero()
    at = positions[rows, columns]
    np.testing.assert_array_equal(labels[rows, columns], ids[rows, at])
    assert not np.isin(labels[real], [CLS, SEP]).any()
    assert (mask[rows, at] == 1).all()
    assert (np.diff(np.where(real, positions, 99), axis=1) >= 0).all()
    others = np.ones(ids.shape, bool)
    others[rows, at] = False
    np.testing.assert_array_equal(masked[others], ids[others])
    seen, true = masked[rows, at], ids[rows, at]
    # A random word is the mask, or the token itself, in one of 40 cases.
    share_of_masks, share_kept = (seen == MASK).mean(), (seen == true).mean()
    error = 4 * np.sqrt(0.25 / len(seen))
    assert share_of_masks == pytest.approx(0.8 + 0.1 / PIECES, abs=error)
    assert share_kept == pytest.approx(0.1 + 0.1 / PIECES, abs=error)
    for values, dtype in (
        (masked, np.int32),
        (positions, np.int32),
        (labels, np.int32),
        (weights, np.float32),
    ):
        assert values.dtype == dtype


def test_a_mask_depends_on_seed_pass_and_record_alone():
    _, _, *first = drawn()
    _, _, *again = drawn()
    for values, expected in zip(again, first, strict=True):
        np.testing.assert_array_equal(values, expected)
    ids, mask = records(4000)
    chosen = np.random.default_rng(2).permutation(4000)[:7]
    masks = DynamicMasks(VOCABULARY, USUAL, 5)
    for values, expected in zip(
        masks(ids[chosen], mask[chosen], np.zeros(7, int), chosen), first, strict=True
    ):
        np.testing.assert_array_equal(values, expected[chosen])
    for changes in ({"seed": 6}, {"passes": 1}):
        positions = drawn(**changes)[3]
        assert (positions == first[1]).all(axis=1).mean() < 0.05


@pytest.mark.parametrize(
    ("changes", "digest"),
    [
        ({}, "b7e7db9a3eeed8ac"),
        (
            {"masked_lm_prob": 0.9, "max_predictions_per_seq": 40, "mask_token_rate": 0.3},
            "33a503409daf7edc",
        ),
        ({"do_whole_word_mask": True}, "aa2813a4302eb868"),
        (
            {"do_whole_word_mask": True, "ngram_masking": 4, "max_predictions_per_seq": 9},
            "36a452c7dd5884b7",
        ),
    ],
)
def test_a_run_that_goes_on_after_an_update_has_the_same_masks(changes, digest):
    """Those of version 596c00a, which drew them column by column."""
    _, _, *found = drawn(dataclasses.replace(USUAL, **changes), passes=3, count=500)
    assert (
        hashlib.sha256(b"".join(values.tobytes() for values in found))
        .hexdigest()
        .startswith(digest)
    )


def test_whole_words_are_masked_with_all_their_pieces():
    config = dataclasses.replace(
        USUAL, do_whole_word_mask=True, mask_token_rate=1.0, random_token_rate=0.0
    )
    ids, mask, masked, *_ = drawn(config)
    is_masked = masked == MASK
    assert is_masked.sum() > 5000
    continues = np.array(VOCABULARY.continues)[ids] & (mask > 0)
    # A piece that goes on with a word is masked exactly when the piece before it is.
    inside = continues[:, 2:] & ~np.isin(ids[:, 1:-1], [CLS, SEP])
    np.testing.assert_array_equal(is_masked[:, 2:][inside], is_masked[:, 1:-1][inside])
    # A first piece is a word, although none is before it.
    leading = is_masked[continues[:, 1] & ~continues[:, 2]]
    assert (leading[:, 1] != leading[:, 2]).any()
    # The second segment, from position 14 on, begins a word, unless with a piece that goes on with
    # the last one.
    differs = is_masked[:, 12] != is_masked[:, 14]
    assert differs[~continues[:, 14]].any()
    assert not differs[continues[:, 14]].any()


def test_the_numbers_are_those_of_splitmix64():
    # The first outputs of the published generator for the seed 1234567.
    key = np.array([1234567], np.uint64)
    drawn = [int(random_streams.draw(key, number)[0]) for number in range(3)]
    assert drawn == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_streams_differ_by_every_part_and_their_order():
    keys = [
        random_streams.stream(*parts)[0]
        for parts in [(1, 2), (2, 1), (1, 3), (0, 2), (1,), (1, 2, 0), (-1, 2)]
    ]
    assert len(set(keys)) == len(keys)
    documents = np.arange(5)
    together = random_streams.stream(7, 3, documents)
    assert together.tolist() == [
        int(random_streams.stream(7, 3, number)[0]) for number in documents
    ]


def test_uniform_and_below_have_the_right_range_and_mean():
    drawn = random_streams.draw(random_streams.stream(5), np.arange(100_000))
    uniform = random_streams.uniform(drawn)
    assert 0 <= uniform.min() < uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 4 * np.sqrt(1 / 12 / len(uniform))
    below = random_streams.below(drawn, 7)
    counts = np.bincount(below)
    assert len(counts) == 7
    assert abs(counts - len(drawn) / 7).max() < 4 * np.sqrt(len(drawn) * 6 / 49)
    assert random_streams.below(drawn[:3], np.array([1, 1, 1])).tolist() == [0, 0, 0]


def test_binomial_numbers_have_their_mean_and_variance_for_few_and_many_trials():
    num_trials = np.repeat([0, 1, 5, 64, 65, 1000, 50_001], 20_000)
    found = random_streams.binomial(
        random_streams.stream(9, np.arange(len(num_trials))), 3, num_trials
    ).reshape(7, -1)
    assert not found[0].any()
    for row, trials in zip(found[1:], (1, 5, 64, 65, 1000, 50_001), strict=True):
        assert 0 <= row.min() <= row.max() <= trials
        assert abs(row.mean() - trials / 2) < 4 * np.sqrt(trials / 4 / len(row))
        assert abs(row.var() / (trials / 4) - 1) < 0.05
