"""Masks many sequences at once: for the generator `sharded`, and for masks that are drawn while records are read.

How many tokens are masked and which is as in `exact`, draw by draw in distribution; beyond it, the replacement rates
are free, and spans of whole words can be masked together. Each sequence has a stream of random numbers, keys uint64[B].
"""

import numpy as np

from official_bert.data.pretraining import random_streams
from official_bert.data.pretraining.settings import InstanceVocabulary, MaskConfig

_POSITIONS_IN_32_BITS = 1 << 9  # of a sort key; the other bits are random
# Numbers of the draws in a sequence's stream.
_SPAN_LENGTHS, _REPLACEMENTS, _ORDER = 1 << 16, 1 << 17, 1 << 18
# Of what dynamic masks change in a batch, in order.
NAMES = ("input_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
DTYPES = ("int32", "int32", "int32", "float32")


def num_predictions(lengths: np.ndarray, masked_lm_prob: float, max_predictions_per_seq: int) -> np.ndarray:
    """Returns int64[B]: the number of predictions for each length; a half rounds to the even number."""
    wanted = np.rint(lengths * masked_lm_prob).astype(np.int64)
    return np.clip(wanted, 1, max_predictions_per_seq)


def draw_positions(
    candidates: np.ndarray, num_wanted: np.ndarray, keys: np.ndarray, max_predictions_per_seq: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws int[B] of the candidates, bool[B, S], all with equal probability; where there are fewer, all of them.

    The result is int64[B, P] in increasing order, 0 for padding, and bool[B, P], false for padding.
    """
    length = candidates.shape[1]
    position = np.arange(length)
    # The random order of the candidates is that of random numbers whose last bits hold the position.
    words = random_streams.draw(keys[:, None], _ORDER + np.arange((length + 1) // 2))  # [B, S / 2], two in each
    if length <= _POSITIONS_IN_32_BITS:
        drawn = words.view(np.uint32)[:, :length]
    else:
        drawn = words.view(np.uint32)[:, :length].astype(np.uint64) << np.uint64(32)
    low = drawn.dtype.type((1 << int(length - 1).bit_length()) - 1)
    order = drawn & ~low | position.astype(drawn.dtype)
    order[~candidates] = np.iinfo(drawn.dtype).max  # last
    if max_predictions_per_seq < length:
        order.partition(max_predictions_per_seq, axis=1)
    order = np.sort(order[:, :max_predictions_per_seq], axis=1) & low
    counts = np.minimum(num_wanted, candidates.sum(axis=1))
    return _sorted_positions(order, counts, max_predictions_per_seq)


def draw_units(
    unit_starts: np.ndarray,
    candidates: np.ndarray,
    num_wanted: np.ndarray,
    keys: np.ndarray,
    max_predictions_per_seq: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws whole units, which are words or spans of words: one that would exceed the number is skipped.

    `unit_starts`, bool[B, S], has the first positions of the units among the candidates; a unit reaches to the next.
    The rest is as in `draw_positions`.
    """
    length = candidates.shape[1]
    unit = np.maximum(np.cumsum(unit_starts, axis=1) - 1, 0)  # [B, S]
    drawn = random_streams.draw(keys[:, None], _ORDER + unit) >> np.uint64(32)
    # Units in random order, each with its positions together: random number, unit, position.
    order = drawn << np.uint64(32) | unit.astype(np.uint64) << np.uint64(16) | np.arange(length, dtype=np.uint64)
    order[~candidates] = np.iinfo(np.uint64).max
    order.sort(axis=1)
    num_candidates = candidates.sum(axis=1)
    positions = (order & np.uint64(0xFFFF)).astype(np.int64)
    units = (order >> np.uint64(16) & np.uint64(0xFFFF)).astype(np.int64)
    within = np.arange(length) < num_candidates[:, None]
    begins = within.copy()
    begins[:, 1:] &= units[:, 1:] != units[:, :-1]
    rows = np.arange(len(keys))[:, None]
    sizes = np.bincount((rows * length + units)[within], minlength=rows.size * length).reshape(-1, length)
    size_here = np.where(begins, np.take_along_axis(sizes, np.minimum(units, length - 1), axis=1), 0)

    taken = np.zeros(candidates.shape, bool)
    total = np.zeros(len(keys), np.int64)
    takes = np.zeros(len(keys), bool)
    for column in range(length):
        begin = begins[:, column]
        takes = np.where(begin, total + size_here[:, column] <= num_wanted, takes)
        total += size_here[:, column] * takes
        taken[:, column] = takes
        if column % 8 == 7 and (total == num_wanted).all():
            taken[:, column + 1 :] = takes[:, None] & (np.cumsum(begins[:, column + 1 :], axis=1) == 0)
            break
    taken &= within
    order = np.where(taken, positions, length)
    order.sort(axis=1)
    return _sorted_positions(order[:, :max_predictions_per_seq], total, max_predictions_per_seq)


def span_starts(word_starts: np.ndarray, longest: int, keys: np.ndarray) -> np.ndarray:
    """Joins words into spans of 1 to `longest` words, a length n with a probability in proportion to 1 / n.

    It takes the first positions of the words, bool[B, S], and returns those of the spans.
    """
    shares = 1 / np.arange(1, longest + 1)
    limits = np.cumsum(shares / shares.sum())[:-1]
    drawn = random_streams.uniform(random_streams.draw(keys[:, None], _SPAN_LENGTHS + np.arange(word_starts.shape[1])))
    lengths = 1 + np.searchsorted(limits, drawn, side="right")  # [B, S], used where a span begins
    starts = np.zeros(word_starts.shape, bool)
    words_left = np.zeros(len(keys), np.int64)
    for column in range(word_starts.shape[1]):
        is_word = word_starts[:, column]
        begins = is_word & (words_left == 0)
        starts[:, column] = begins
        words_left = np.where(begins, lengths[:, column], words_left) - is_word
    return starts


def draw_replacements(
    tokens: np.ndarray,
    keys: np.ndarray,
    mask_id: int,
    word_ids: np.ndarray,
    mask_token_rate: float,
    random_token_rate: float,
) -> np.ndarray:
    """Draws the ids, int[B, P], that replace the predicted tokens: [MASK], a random word, or the token itself."""
    words = random_streams.draw(keys[:, None], _REPLACEMENTS + np.arange(tokens.shape[1]))
    choice = (words & np.uint64(0xFFFFFFFF)) * 2.0**-32
    random_words = word_ids[random_streams.below(words, len(word_ids))]
    replaced = np.where(choice < mask_token_rate + random_token_rate, random_words, tokens)
    return np.where(choice < mask_token_rate, mask_id, replaced)


def _sorted_positions(order: np.ndarray, counts: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first `counts` positions of each row in increasing order, padded to `width` columns."""
    drawn = np.arange(order.shape[1]) < counts[:, None]
    positions = np.where(drawn, order, np.iinfo(np.int32).max).astype(np.int32)
    positions.sort(axis=1)
    positions = np.where(drawn, positions, 0)
    missing = width - positions.shape[1]
    if missing > 0:
        positions, drawn = (np.pad(values, ((0, 0), (0, missing))) for values in (positions, drawn))
    return positions.astype(np.int64), drawn


class Masker:
    def __init__(self, vocabulary: InstanceVocabulary, config: MaskConfig):
        self._config, self._mask_id = config, vocabulary.mask_id
        self._word_ids = np.array(vocabulary.word_ids, np.int32)
        self._continues = np.array(vocabulary.continues)

    def mask(
        self, input_ids: np.ndarray, candidates: np.ndarray, lengths: np.ndarray, keys: np.ndarray
    ) -> tuple[dict[str, np.ndarray], dict[str, int]]:
        """Replaces tokens in `input_ids`, int[B, S], at some of the candidates, bool[B, S].

        Returns masked_lm_positions, masked_lm_ids and masked_lm_weights, [B, P] each, and counts by name.
        """
        config = self._config
        positions, is_masked = self._positions(input_ids, candidates, lengths, keys)
        masked_lm_ids = np.take_along_axis(input_ids, positions, axis=1) * is_masked
        rates = config.mask_token_rate, config.random_token_rate
        replaced = draw_replacements(masked_lm_ids, keys, self._mask_id, self._word_ids, *rates)
        rows, columns = is_masked.nonzero()
        input_ids[rows, positions[rows, columns]] = replaced[rows, columns]
        is_mask = is_masked & (replaced == self._mask_id)
        counts = {
            "predictions": int(is_masked.sum()),
            "predictions_masked": int(is_mask.sum()),
            "predictions_kept": int((is_masked & (replaced == masked_lm_ids) & ~is_mask).sum()),
        }
        return {
            "masked_lm_positions": positions,
            "masked_lm_ids": masked_lm_ids,
            "masked_lm_weights": is_masked,
        }, counts

    def _positions(self, input_ids, candidates, lengths, keys) -> tuple[np.ndarray, np.ndarray]:
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
    """Masks the batches of records without masks: others in each pass, and the same ones in each run with the seed."""

    def __init__(self, vocabulary: InstanceVocabulary, config: MaskConfig, seed: int):
        self._masker, self._seed = Masker(vocabulary, config), seed
        self._special = np.array([vocabulary.cls_id, vocabulary.sep_id])
        self.max_predictions_per_seq = config.max_predictions_per_seq

    def __call__(
        self, input_ids: np.ndarray, input_mask: np.ndarray, passes: np.ndarray, records: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Masks int32[B, S], by the number of the pass over the data and the hash of each record, int64[B] both.

        Returns NAMES: int32[B, S], int32[B, P], int32[B, P] and float32[B, P].
        """
        ids = np.array(input_ids)
        candidates = (input_mask > 0) & ~np.isin(ids, self._special)
        keys = random_streams.stream(self._seed, passes, records)
        features, _ = self._masker.mask(ids, candidates, input_mask.sum(axis=1), keys)
        features["input_ids"] = ids
        return tuple(features[name].astype(dtype) for name, dtype in zip(NAMES, DTYPES, strict=True))
