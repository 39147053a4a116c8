"""Masks many sequences at once: for the generator `sharded`, and for masks that are drawn while
records are read.

How many tokens are masked and which is as in `exact`, draw by draw in distribution; beyond it, the
replacement rates are free, and spans of whole words can be masked together. Each sequence has a
stream of random numbers, keys uint64[B].
"""

import numpy as np

from official_bert.data.pretraining import random_streams
from official_bert.data.pretraining.settings import InstanceVocabulary, MaskConfig

_POSITIONS_IN_32_BITS = 1 << 9  # of a sort key; the other bits are random
# Numbers of the draws in a sequence's stream.
_SPAN_LENGTHS, _REPLACEMENTS, _ORDER = 1 << 16, 1 << 17, 1 << 18
# Parts of the numbers that sort units: random ones, and sizes.
_HIGH, _SIZE, _LAST = np.uint64(0xFFFFFFFF << 32), np.uint64(0xFFFF), np.uint64(0xFFFFFFFFFFFFFFFF)
# Of what dynamic masks change in a batch, in order.
NAMES = ("input_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
DTYPES = ("int32", "int32", "int32", "float32")


def num_predictions(
    lengths: np.ndarray, masked_lm_prob: float, max_predictions_per_seq: int
) -> np.ndarray:
    """Returns int64[B]: the number of predictions for each length; a half rounds to the even
    number.
    """
    counts = np.rint(lengths * masked_lm_prob).astype(np.int64)
    return np.clip(counts, 1, max_predictions_per_seq)


def draw_positions(
    candidates: np.ndarray, num_masked: np.ndarray, keys: np.ndarray, max_predictions_per_seq: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws int[B] of the candidates, bool[B, S], all with equal probability; where there are
    fewer, all of them.

    The result is int64[B, P] in increasing order, 0 for padding, and bool[B, P], false for padding.
    """
    length = candidates.shape[1]
    # The random order of the candidates is that of random numbers whose last bits hold the
    # position.
    # [B, S / 2], two in each.
    words = random_streams.draw(keys[:, None], _ORDER + np.arange((length + 1) // 2))
    order = words.view(np.uint32)[:, :length]
    if length > _POSITIONS_IN_32_BITS:
        order = order.astype(np.uint64) << np.uint64(32)
    low = order.dtype.type((1 << int(length - 1).bit_length()) - 1)
    order &= ~low
    order |= np.arange(length, dtype=order.dtype)
    order[~candidates] = np.iinfo(order.dtype).max  # last
    num_chosen = np.minimum(num_masked, _true_in_rows(candidates))
    limit = _take_last(np.sort(order, axis=1), num_chosen)
    return _pack_left((order <= limit) & candidates, max_predictions_per_seq)


def draw_units(
    unit_starts: np.ndarray,
    candidates: np.ndarray,
    num_masked: np.ndarray,
    keys: np.ndarray,
    max_predictions_per_seq: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws whole units, which are words or spans of words: one that would exceed the number is
    skipped.

    `unit_starts`, bool[B, S], has the first positions of the units among the candidates; a unit
    reaches to the next. The rest is as in `draw_positions`.
    """
    rows = len(candidates)
    unit = np.cumsum(unit_starts, axis=1, dtype=np.int32)
    num_units = int(unit[:, -1].max(initial=1))
    np.maximum(unit, 1, out=unit)
    # The number in [B, U].
    unit += np.arange(-1, rows * num_units - 1, num_units, dtype=np.int32)[:, None]
    sizes = np.bincount(unit[candidates], minlength=rows * num_units).reshape(rows, num_units)
    # Units in random order: random number, unit, size. Those in excess, of size 0, are the last
    # ones, too large to fit.
    order = random_streams.draw(keys[:, None], _ORDER + np.arange(num_units))
    order &= _HIGH
    order |= np.arange(num_units, dtype=np.uint64) << np.uint64(16)
    order |= sizes.astype(np.uint64)
    order[sizes == 0] = _LAST
    first = order
    if max_predictions_per_seq < num_units:
        first = np.partition(order, max_predictions_per_seq, axis=1)[:, :max_predictions_per_seq]
    first = np.sort(first, axis=1)
    # Up to the first one that does not fit, all are taken; of those after it, always the next one
    # that fits.
    totals = np.cumsum(first & _SIZE, axis=1, dtype=np.int64)
    num_first = _true_in_rows(totals <= num_masked[:, None])
    taken = order <= _take_last(first, num_first)
    total = _take_last(totals, num_first)[:, 0]
    unfilled = np.flatnonzero(total < num_masked)
    while len(unfilled):
        room = (num_masked - total)[unfilled]
        keys_left = order[unfilled]
        is_excluded = taken[unfilled] | ((keys_left & _SIZE) > room[:, None])
        fits = np.where(is_excluded, _LAST, keys_left)
        chosen = fits.argmin(axis=1)
        has_fit = fits[np.arange(len(unfilled)), chosen] != _LAST
        unfilled = unfilled[has_fit]
        chosen = chosen[has_fit]
        taken[unfilled, chosen] = True
        total[unfilled] += sizes[unfilled, chosen]
        unfilled = unfilled[total[unfilled] < num_masked[unfilled]]
    return _pack_left(taken.ravel()[unit] & candidates, max_predictions_per_seq)


def span_starts(word_starts: np.ndarray, longest: int, keys: np.ndarray) -> np.ndarray:
    """Joins words into spans of 1 to `longest` words, a length n with a probability in proportion
    to 1 / n.

    It takes the first positions of the words, bool[B, S], and returns those of the spans.
    """
    shares = 1 / np.arange(1, longest + 1)
    limits = np.cumsum(shares / shares.sum())[:-1]
    numbers = _SPAN_LENGTHS + np.arange(word_starts.shape[1])
    fractions = random_streams.uniform(random_streams.draw(keys[:, None], numbers))
    lengths = np.ones(fractions.shape, np.int32)  # in words, used where a span begins
    for limit in limits:
        lengths += fractions >= limit
    # From here on by the number of the word, [words, B].
    is_word = np.arange(word_starts.shape[1]) < _true_in_rows(word_starts)[:, None]
    span_lengths = np.zeros(fractions.shape, np.int32)
    span_lengths[is_word] = lengths[word_starts]
    span_lengths = np.ascontiguousarray(span_lengths.T)
    begins = np.zeros(span_lengths.shape, bool)
    next_begin = np.zeros(len(keys), np.int32)
    for word in range(np.count_nonzero(is_word.any(axis=0))):
        np.equal(next_begin, word, out=begins[word])
        np.add(next_begin, span_lengths[word], out=next_begin, where=begins[word])
    starts = np.zeros(word_starts.shape, bool)
    starts[word_starts] = begins.T[is_word]
    return starts


def draw_replacements(
    tokens: np.ndarray,
    keys: np.ndarray,
    mask_id: int,
    word_ids: np.ndarray,
    mask_token_rate: float,
    random_token_rate: float,
) -> np.ndarray:
    """Draws the ids, int[B, P], that replace the predicted tokens: [MASK], a random word, or the
    token itself.
    """
    words = random_streams.draw(keys[:, None], _REPLACEMENTS + np.arange(tokens.shape[1]))
    choice = words.astype(np.uint32)  # the last 32 bits
    random_words = word_ids[random_streams.below(words, len(word_ids))]
    is_replaced = choice < (mask_token_rate + random_token_rate) * 2.0**32
    replaced = np.where(is_replaced, random_words, tokens)
    return np.where(choice < mask_token_rate * 2.0**32, mask_id, replaced)


def _true_in_rows(values: np.ndarray) -> np.ndarray:
    """Returns int64[B]: how many of bool[B, S] are true."""
    return np.add.reduce(values, axis=1, dtype=np.int64)


def _take_last(rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns [B, 1]: the last of the first `counts` values of each row, or 0 if there is none."""
    columns = np.maximum(counts - 1, 0)[:, None]
    return np.take_along_axis(rows, columns, axis=1) * (counts > 0)[:, None]


def _pack_left(is_chosen: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the true positions of bool[B, S] in int64[B, width], filled with 0, and bool[B,
    width], false there.
    """
    is_filled = np.arange(width) < _true_in_rows(is_chosen)[:, None]
    positions = np.zeros(is_filled.shape, np.int64)
    positions[is_filled] = np.flatnonzero(is_chosen) % is_chosen.shape[1]
    return positions, is_filled


class Masker:
    def __init__(self, vocabulary: InstanceVocabulary, config: MaskConfig):
        self._config, self._mask_id = config, vocabulary.mask_id
        self._word_ids = np.array(vocabulary.word_ids, np.int32)
        self._continues = np.array(vocabulary.continues)

    def mask(
        self, input_ids: np.ndarray, candidates: np.ndarray, lengths: np.ndarray, keys: np.ndarray
    ) -> tuple[dict[str, np.ndarray], dict[str, int]]:
        """Replaces tokens in `input_ids`, int[B, S], at some of the candidates, bool[B, S].

        Returns masked_lm_positions, masked_lm_ids and masked_lm_weights, [B, P] each, and counts by
        name.
        """
        features, replaced = self.masked(input_ids, candidates, lengths, keys)
        is_masked = features["masked_lm_weights"]
        is_mask = is_masked & (replaced == self._mask_id)
        counts = {
            "predictions": int(is_masked.sum()),
            "predictions_masked": int(is_mask.sum()),
            "predictions_kept": int(
                (is_masked & (replaced == features["masked_lm_ids"]) & ~is_mask).sum()
            ),
        }
        return features, counts

    def masked(
        self, input_ids: np.ndarray, candidates: np.ndarray, lengths: np.ndarray, keys: np.ndarray
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Does what `mask` does without counting, and returns the ids that the predicted tokens
        became, int[B, P].
        """
        config = self._config
        positions, is_masked = self._positions(input_ids, candidates, lengths, keys)
        rows, length = input_ids.shape
        at = positions + np.arange(0, rows * length, length)[:, None]  # in all rows
        masked_lm_ids = input_ids.ravel()[at] * is_masked
        rates = config.mask_token_rate, config.random_token_rate
        replaced = draw_replacements(masked_lm_ids, keys, self._mask_id, self._word_ids, *rates)
        np.put(input_ids, at[is_masked], replaced[is_masked])
        features = {
            "masked_lm_positions": positions,
            "masked_lm_ids": masked_lm_ids,
            "masked_lm_weights": is_masked,
        }
        return features, replaced

    def _positions(
        self, input_ids: np.ndarray, candidates: np.ndarray, lengths: np.ndarray, keys: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        config = self._config
        most = config.max_predictions_per_seq
        count = num_predictions(lengths, config.masked_lm_prob, most)
        if not config.do_whole_word_mask:
            return draw_positions(candidates, count, keys, most)
        starts = candidates & ~self._continues[input_ids]
        starts[:, 1] |= candidates[:, 1]  # a piece "##x" without a piece before it is a word
        if config.ngram_masking > 1:
            starts = span_starts(starts, config.ngram_masking, keys)
        return draw_units(starts, candidates, count, keys, most)


class DynamicMasks:
    """Masks the batches of records without masks: others in each pass, and the same ones in each
    run with the seed.
    """

    def __init__(self, vocabulary: InstanceVocabulary, config: MaskConfig, seed: int):
        self._masker, self._seed = Masker(vocabulary, config), seed
        self._special = vocabulary.cls_id, vocabulary.sep_id
        self.max_predictions_per_seq = config.max_predictions_per_seq

    def __call__(
        self, input_ids: np.ndarray, input_mask: np.ndarray, passes: np.ndarray, records: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Masks int32[B, S], by the number of the pass over the data and the hash of each record,
        int64[B] both.

        Returns NAMES: int32[B, S], int32[B, P], int32[B, P] and float32[B, P].
        """
        ids = np.array(input_ids)
        candidates = input_mask > 0
        for special in self._special:
            candidates &= ids != special
        keys = random_streams.stream(self._seed, passes, records)
        features, _ = self._masker.masked(ids, candidates, input_mask.sum(axis=1), keys)
        features["input_ids"] = ids
        return tuple(
            features[name].astype(dtype) for name, dtype in zip(NAMES, DTYPES, strict=True)
        )
