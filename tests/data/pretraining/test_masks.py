"""Masks of many sequences: how many, where, in whole words and spans; and the streams of numbers
that decide it.
"""

import collections
import dataclasses
import hashlib
from typing import NamedTuple

import numpy as np
import pytest

from official_bert.data.pretraining import exact, masks, random_streams
from official_bert.data.pretraining.masks import DynamicMasks
from official_bert.data.pretraining.settings import InstanceVocabulary, MaskConfig


def make_keys(seed: int, count: int) -> np.ndarray:
    """The keys of so many streams of a seed."""
    return random_streams.stream(seed, np.arange(count))


SHARES_AND_LIMITS = {
    "usual": (0.15, 20),
    "usual share, high limit": (0.15, 76),
    "never limited": (0.3, 1000),
    "no share": (0.0, 5),
}


@pytest.mark.parametrize(
    ("share", "limit"), SHARES_AND_LIMITS.values(), ids=SHARES_AND_LIMITS.keys()
)
def test_the_numbers_of_predictions_are_those_of_the_slow_function(share, limit):
    lengths = np.arange(3, 513)
    numbers = masks.num_predictions(lengths, share, limit)
    for length, number in zip(lengths.tolist(), numbers.tolist(), strict=True):
        assert number == exact.num_predictions(length, share, limit)


@pytest.mark.parametrize("length", [9, 600])
def test_positions_are_equally_likely_candidates_in_increasing_order(length):
    rows = 40_000 if length == 9 else 3_000
    special_positions = [0, 4, length - 1]
    candidates = np.ones((rows, length), bool)
    candidates[:, special_positions] = False
    positions, is_drawn = masks.draw_positions(
        candidates,
        np.full(rows, 2),
        make_keys(3, rows),
        3,
    )
    first, second, padding = positions.T
    assert is_drawn.tolist() == [[True, True, False]] * rows
    assert (first < second).all()
    assert not padding.any()

    counts = np.bincount(np.concatenate([first, second]), minlength=length)
    candidate_counts = np.delete(counts, special_positions)
    expected = 2 * rows / (length - 3)
    differences = abs(candidate_counts - expected)
    standard_error = np.sqrt(expected)
    assert not counts[special_positions].any()
    assert differences.max() < 5 * standard_error


def test_all_candidates_are_drawn_if_there_are_too_few():
    candidates = np.array([[False, True, False, True, False]])
    positions, is_drawn = masks.draw_positions(
        candidates,
        np.array([4]),
        random_streams.stream(1),
        3,
    )
    assert positions.tolist() == [[1, 3, 0]]
    assert is_drawn.tolist() == [[True, True, False]]


def unit_shares(num_positions: int) -> dict[tuple[int, ...], float]:
    """Draws units in 6,000 equal rows; returns the share of rows of each tuple of positions."""
    # The units have 3, 1 and 2 positions.
    pieces = ["[CLS]", "a", "##a", "##a", "b", "[SEP]", "c", "##c", "[SEP]"]
    starts = [piece in "abc" for piece in pieces]
    candidates = [not piece.startswith("[") for piece in pieces]
    rows = 6_000
    positions, is_drawn = masks.draw_units(
        np.array([starts] * rows),
        np.array([candidates] * rows),
        np.full(rows, num_positions),
        make_keys(4, rows),
        5,
    )
    counts = collections.Counter()
    for row in range(rows):
        row_positions = positions[row][is_drawn[row]]
        counts[tuple(row_positions.tolist())] += 1
    return {row_positions: count / rows for row_positions, count in counts.items()}


def test_units_are_drawn_whole_and_one_that_does_not_fit_is_skipped():
    # The three units come in random order, and each is drawn if it fits.
    a = (1, 2, 3)
    b = (4,)
    c = (6, 7)
    half = pytest.approx(1 / 2, abs=0.03)
    third = pytest.approx(1 / 3, abs=0.03)
    two_thirds = pytest.approx(2 / 3, abs=0.03)
    assert unit_shares(1) == {b: 1.0}
    assert unit_shares(2) == {b: half, c: half}
    assert unit_shares(3) == {a: third, b + c: two_thirds}
    assert unit_shares(4) == {a + b: half, b + c: half}


def test_units_in_long_rows_are_those_of_a_plain_loop():
    rng = np.random.default_rng(5)
    rows = 200
    length = 70
    row_lengths = rng.integers(5, length, rows)
    candidates = np.arange(length) < row_lengths[:, None]
    candidates[:, 0] = False
    begins_unit = rng.random((rows, length)) < 0.6
    starts = candidates & begins_unit
    starts[:, 1] = True
    max_positions = 11
    limits = rng.integers(1, max_positions + 1, rows)
    keys = make_keys(8, rows)
    positions, is_drawn = masks.draw_units(
        starts,
        candidates,
        limits,
        keys,
        max_positions,
    )
    for row in range(rows):
        row_candidates = np.flatnonzero(candidates[row])
        candidate_starts = starts[row][row_candidates]
        later_starts = np.flatnonzero(candidate_starts)[1:]
        units = np.split(row_candidates, later_starts)
        row_positions = positions[row][is_drawn[row]]
        room = limits[row] - len(row_positions)
        num_drawn = 0
        assert room >= 0
        for unit in units:
            if np.isin(unit, row_positions).all():
                num_drawn += len(unit)
            else:
                # It does not fit.
                assert len(unit) > room
        # Units are drawn whole or not at all.
        assert num_drawn == len(row_positions)


def test_spans_have_lengths_in_proportion_to_one_over_n():
    rows = 3_000
    length = 60
    words = np.ones((rows, length), bool)
    words[:, 0] = False
    # Every second word has two pieces.
    words[:, 2::3] = False
    keys = make_keys(6, rows)
    starts = masks.span_starts(words, 3, keys)
    assert not (starts & ~words).any()
    assert starts[:, 1].all()

    counts = np.zeros(4)
    for row in range(rows):
        word_numbers = np.cumsum(words[row])
        start_numbers = word_numbers[starts[row]]
        for span_length in np.diff(start_numbers):
            counts[span_length] += 1
    shares = counts[1:] / counts.sum()
    weights = np.array([1, 1 / 2, 1 / 3])
    assert shares == pytest.approx(weights / weights.sum(), abs=0.01)


CLS = 0
SEP = 1
MASK = 2
PIECES = 40
VOCABULARY = InstanceVocabulary(
    CLS,
    SEP,
    MASK,
    list(range(PIECES)),
    [piece >= 30 for piece in range(PIECES)],
)
USUAL = MaskConfig(masked_lm_prob=0.15, max_predictions_per_seq=4)


def make_records(count: int) -> tuple[np.ndarray, np.ndarray]:
    """[CLS] 12 pieces [SEP] pieces [SEP] and padding, of different lengths."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(20, 33, count)
    ids = rng.integers(3, PIECES, (count, 32), np.int32)
    ids[:, 0] = CLS
    ids[:, 13] = SEP
    ids[np.arange(count), lengths - 1] = SEP
    is_token = np.arange(32) < lengths[:, None]
    mask = is_token.astype(np.int32)
    return ids * mask, mask


class MaskedRecords(NamedTuple):
    """Records and their masks, as `DynamicMasks` returns them."""

    ids: np.ndarray
    mask: np.ndarray
    masked: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    weights: np.ndarray

    @property
    def outputs(self) -> tuple[np.ndarray, ...]:
        return self[2:]


def mask_records(config=USUAL, seed=5, passes=0, count=4000) -> MaskedRecords:
    ids, mask = make_records(count)
    dynamic_masks = DynamicMasks(VOCABULARY, config, seed)
    outputs = dynamic_masks(
        ids,
        mask,
        np.full(count, passes),
        np.arange(count),
    )
    return MaskedRecords(ids, mask, *outputs)


def test_masks_have_the_shares_of_the_paper_and_labels_are_the_tokens():
    records = mask_records()
    is_prediction = records.weights > 0
    num_tokens = records.mask.sum(axis=1)
    num_predictions = is_prediction.sum(axis=1)
    wanted_predictions = np.rint(num_tokens * 0.15)
    np.testing.assert_array_equal(num_predictions, np.clip(wanted_predictions, 1, 4))

    rows, columns = is_prediction.nonzero()
    positions = records.positions[rows, columns]
    tokens = records.ids[rows, positions]
    labels = records.labels[rows, columns]
    is_special_token = np.isin(labels, [CLS, SEP])
    is_token = records.mask[rows, positions] == 1
    np.testing.assert_array_equal(labels, tokens)
    assert not is_special_token.any()
    assert is_token.all()
    padded_positions = np.where(is_prediction, records.positions, 99)
    assert (np.diff(padded_positions, axis=1) >= 0).all()

    is_unchanged = np.ones(records.ids.shape, bool)
    is_unchanged[rows, positions] = False
    np.testing.assert_array_equal(
        records.masked[is_unchanged],
        records.ids[is_unchanged],
    )
    # A random word is the mask, or the token itself, in one of 40 cases.
    masked_tokens = records.masked[rows, positions]
    mask_share = (masked_tokens == MASK).mean()
    same_share = (masked_tokens == tokens).mean()
    chance_share = 0.1 / PIECES
    error = 4 * np.sqrt(0.25 / len(tokens))
    assert mask_share == pytest.approx(0.8 + chance_share, abs=error)
    assert same_share == pytest.approx(0.1 + chance_share, abs=error)

    assert records.masked.dtype == np.int32
    assert records.positions.dtype == np.int32
    assert records.labels.dtype == np.int32
    assert records.weights.dtype == np.float32


def test_a_mask_depends_on_seed_pass_and_record_alone():
    records = mask_records()
    again = mask_records()
    for values, expected in zip(again.outputs, records.outputs, strict=True):
        np.testing.assert_array_equal(values, expected)

    rng = np.random.default_rng(2)
    numbers = rng.permutation(4000)[:7]
    dynamic_masks = DynamicMasks(VOCABULARY, USUAL, 5)
    outputs = dynamic_masks(
        records.ids[numbers],
        records.mask[numbers],
        np.zeros(7, int),
        numbers,
    )
    for values, expected in zip(outputs, records.outputs, strict=True):
        np.testing.assert_array_equal(values, expected[numbers])

    for others in (mask_records(seed=6), mask_records(passes=1)):
        has_same_positions = (others.positions == records.positions).all(axis=1)
        assert has_same_positions.mean() < 0.05


@pytest.mark.parametrize(
    ("changes", "digest"),
    [
        pytest.param({}, "b7e7db9a3eeed8ac", id="usual"),
        pytest.param(
            {
                "masked_lm_prob": 0.9,
                "max_predictions_per_seq": 40,
                "mask_token_rate": 0.3,
            },
            "33a503409daf7edc",
            id="many predictions",
        ),
        pytest.param(
            {"do_whole_word_mask": True},
            "aa2813a4302eb868",
            id="whole words",
        ),
        pytest.param(
            {
                "do_whole_word_mask": True,
                "ngram_masking": 4,
                "max_predictions_per_seq": 9,
            },
            "36a452c7dd5884b7",
            id="spans",
        ),
    ],
)
def test_a_run_that_continues_after_an_update_has_the_same_masks(changes, digest):
    """The masks are those of version 596c00a, which drew them column by column."""
    config = dataclasses.replace(USUAL, **changes)
    records = mask_records(config, passes=3, count=500)
    content = b"".join(values.tobytes() for values in records.outputs)
    assert hashlib.sha256(content).hexdigest().startswith(digest)


def test_whole_words_are_masked_with_all_their_pieces():
    config = dataclasses.replace(
        USUAL,
        do_whole_word_mask=True,
        mask_token_rate=1.0,
        random_token_rate=0.0,
    )
    records = mask_records(config)
    is_masked = records.masked == MASK
    assert is_masked.sum() > 5000
    is_continuation = np.array(VOCABULARY.continues)[records.ids]
    is_continuation &= records.mask > 0

    # A continuation piece is masked exactly when the piece before it is masked.
    is_special_token = np.isin(records.ids, [CLS, SEP])
    follows_special_token = is_special_token[:, 1:-1]
    is_inside_word = is_continuation[:, 2:] & ~follows_special_token
    piece_masks = is_masked[:, 2:]
    masks_before = is_masked[:, 1:-1]
    np.testing.assert_array_equal(
        piece_masks[is_inside_word],
        masks_before[is_inside_word],
    )
    # One row for each position, with a column for each record.
    masked_at = is_masked.T
    continuation_at = is_continuation.T
    # A continuation piece after [CLS] is a word of its own.
    begins_with_two_words = continuation_at[1] & ~continuation_at[2]
    differs = masked_at[1] != masked_at[2]
    assert differs[begins_with_two_words].any()
    # The second segment starts at position 14. Its first piece belongs to the last word of the
    # first segment if it is a continuation piece.
    differs = masked_at[12] != masked_at[14]
    belongs_to_last_word = continuation_at[14]
    assert differs[~belongs_to_last_word].any()
    assert not differs[belongs_to_last_word].any()


def test_the_numbers_are_those_of_splitmix64():
    # The first outputs of the published generator for the seed 1234567.
    key = np.array([1234567], np.uint64)
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    for number, value in enumerate(expected):
        assert random_streams.draw(key, number).tolist() == [value]


def test_streams_differ_by_every_part_and_their_order():
    stream_parts = [
        (1, 2),
        (2, 1),
        (1, 3),
        (0, 2),
        (1,),
        (1, 2, 0),
        (-1, 2),
    ]
    keys = [random_streams.stream(*parts)[0] for parts in stream_parts]
    assert len(set(keys)) == len(keys)

    document_numbers = np.arange(5)
    batched_keys = random_streams.stream(7, 3, document_numbers)
    for number, key in zip(document_numbers, batched_keys, strict=True):
        single_keys = random_streams.stream(7, 3, number)
        assert single_keys[0] == key


def test_uniform_and_below_have_the_right_range_and_mean():
    key = random_streams.stream(5)
    words = random_streams.draw(key, np.arange(100_000))
    uniform = random_streams.uniform(words)
    variance = 1 / 12
    standard_error = np.sqrt(variance / len(uniform))
    assert uniform.min() >= 0
    assert uniform.min() < uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 4 * standard_error

    below = random_streams.below(words, 7)
    counts = np.bincount(below)
    differences = abs(counts - len(words) / 7)
    variance = len(words) * 6 / 49
    assert len(counts) == 7
    assert differences.max() < 4 * np.sqrt(variance)
    ones = np.array([1, 1, 1])
    below_one = random_streams.below(words[:3], ones)
    assert below_one.tolist() == [0, 0, 0]


def test_binomial_numbers_have_their_mean_and_variance_for_few_and_many_trials():
    trial_numbers = [0, 1, 5, 64, 65, 1000, 50_001]
    num_trials = np.repeat(trial_numbers, 20_000)
    keys = make_keys(9, len(num_trials))
    draws = random_streams.binomial(keys, 3, num_trials).reshape(7, -1)
    draws_by_trials = dict(zip(trial_numbers, draws, strict=True))
    assert not draws_by_trials.pop(0).any()
    for trials, row in draws_by_trials.items():
        mean = trials / 2
        variance = trials / 4
        variance_ratio = row.var() / variance
        standard_error = np.sqrt(variance / len(row))
        assert row.min() >= 0
        assert row.max() <= trials
        assert abs(row.mean() - mean) < 4 * standard_error
        assert abs(variance_ratio - 1) < 0.05
