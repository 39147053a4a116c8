"""Masks that are drawn while records are read: shares, streams, whole words, and what stays as it is."""

import numpy as np
import pytest

from official_bert.data.corpus.bulk_masks import MaskingSettings
from official_bert.data.corpus.dynamic_masks import DynamicMasks
from official_bert.data.corpus.instances import InstanceSettings, InstanceVocabulary

CLS, SEP, MASK, PIECES = 0, 1, 2, 40
VOCABULARY = InstanceVocabulary(CLS, SEP, MASK, list(range(PIECES)), [piece >= 30 for piece in range(PIECES)])
SETTINGS = InstanceSettings(
    max_seq_length=32, dupe_factor=1, short_seq_prob=0.0, masked_lm_prob=0.15, max_predictions_per_seq=4
)

USUAL = MaskingSettings()


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


def drawn(settings=SETTINGS, masking=USUAL, seed=5, passes=0, count=4000):
    ids, mask = records(count)
    numbers = np.full(count, passes)
    return ids, mask, *DynamicMasks(VOCABULARY, settings, masking, seed)(ids, mask, numbers, np.arange(count))


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
    masks = DynamicMasks(VOCABULARY, SETTINGS, MaskingSettings(), 5)
    for values, expected in zip(
        masks(ids[chosen], mask[chosen], np.zeros(7, int), chosen), first, strict=True
    ):
        np.testing.assert_array_equal(values, expected[chosen])
    for changes in ({"seed": 6}, {"passes": 1}):
        positions = drawn(**changes)[3]
        assert (positions == first[1]).all(axis=1).mean() < 0.05


def test_whole_words_are_masked_with_all_their_pieces():
    settings = InstanceSettings(**(vars(SETTINGS) | {"do_whole_word_mask": True}))
    masking = MaskingSettings(mask_token_rate=1.0, random_token_rate=0.0)
    ids, mask, masked, *_ = drawn(settings, masking)
    is_masked = masked == MASK
    assert is_masked.sum() > 5000
    continues = np.array(VOCABULARY.continues)[ids] & (mask > 0)
    # A piece that goes on with a word is masked exactly when the piece before it is.
    inside = continues[:, 2:] & ~np.isin(ids[:, 1:-1], [CLS, SEP])
    np.testing.assert_array_equal(is_masked[:, 2:][inside], is_masked[:, 1:-1][inside])
    # The second segment, from position 14 on, begins a word, unless with a piece that goes on with the last one.
    differs = is_masked[:, 12] != is_masked[:, 14]
    assert differs[~continues[:, 14]].any()
    assert not differs[continues[:, 14]].any()
