"""Masks many sequences at once: for the generator `sharded`, and while records are read.

The number of masked tokens and the choice among them have the distribution of `exact`, draw by
draw. Beyond `exact`, the replacement rates can be chosen, and spans of whole words can be masked
together. Each sequence has a stream of random numbers, keys uint64[B].
"""

import numpy as np

from official_bert.data.pretraining import random_streams
from official_bert.data.pretraining.settings import InstanceVocabulary, MaskConfig
from official_bert.features import length_mask

# A sort key has the position in its last bits, and random numbers in the others.
_POSITIONS_IN_32_BITS = 1 << 9
# Numbers of the draws in a sequence's stream.
_SPAN_LENGTHS = 1 << 16
_REPLACEMENTS = 1 << 17
_ORDER = 1 << 18
# The sort key of a unit: 32 random bits, its number in 16 bits, and its size in the last 16 bits.
_RANDOM_BITS = np.uint64(0xFFFFFFFF << 32)
_NUMBER_SHIFT = np.uint64(16)
_SIZE = np.uint64(0xFFFF)
_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)
# The features that dynamic masks change in a batch, in order.
NAMES = ("input_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
DTYPES = ("int32", "int32", "int32", "float32")

# The drawn positions in increasing order, int64[B, P], 0 for padding, and bool[B, P], false for
# padding.
Positions = tuple[np.ndarray, np.ndarray]


def num_predictions(
    lengths: np.ndarray,
    masked_lm_prob: float,
    max_predictions_per_seq: int,
) -> np.ndarray:
    """Returns the number of predictions for each sequence.

    A half rounds to the even number.

    Args:
        lengths: the number of tokens of each sequence, int[B], special ones included.
        masked_lm_prob: the share of the tokens that are predicted, at least one of them.
        max_predictions_per_seq: the largest number of predictions.

    Returns:
        int64[B].
    """
    counts = np.rint(lengths * masked_lm_prob).astype(np.int64)
    return np.clip(counts, 1, max_predictions_per_seq)


def draw_positions(
    candidates: np.ndarray,
    num_masked: np.ndarray,
    keys: np.ndarray,
    max_predictions_per_seq: int,
) -> Positions:
    """Draws positions, all with equal probability.

    Args:
        candidates: whether a position may be drawn, bool[B, S].
        num_masked: the number of positions to draw, int[B]. Of fewer candidates, all are drawn.
        keys: the stream of each sequence, uint64[B].
        max_predictions_per_seq: the width P of the result.

    Returns:
        The positions in increasing order, int64[B, P], 0 for padding, and bool[B, P], false for
        padding.
    """
    length = candidates.shape[1]
    # Sort the candidates by random numbers. A word has two of them, so there are [B, S / 2] words.
    words = _draw_numbers(keys, _ORDER, (length + 1) // 2)
    order = words.view(np.uint32)[:, :length]
    if length > _POSITIONS_IN_32_BITS:
        order = order.astype(np.uint64)
        order <<= np.uint64(32)
    dtype = order.dtype
    # Replace the last bits of each number by the position, so that no two are equal.
    num_position_bits = (length - 1).bit_length()
    position_bits = dtype.type((1 << num_position_bits) - 1)
    order &= ~position_bits
    order |= np.arange(length, dtype=dtype)
    order[~candidates] = np.iinfo(dtype).max  # the last ones
    num_chosen = np.minimum(num_masked, _count_true(candidates))
    limit = _take_last(np.sort(order, axis=1), num_chosen)
    is_chosen = (order <= limit) & candidates
    return _pack_left(is_chosen, max_predictions_per_seq)


def draw_units(
    unit_starts: np.ndarray,
    candidates: np.ndarray,
    num_masked: np.ndarray,
    keys: np.ndarray,
    max_predictions_per_seq: int,
) -> Positions:
    """Draws whole units, which are words or spans of words.

    A unit that would exceed the number of positions is skipped.

    Args:
        unit_starts: the first positions of the units among the candidates, bool[B, S]; a unit
            reaches to the next one.
        candidates: whether a position may be drawn, bool[B, S].
        num_masked: the largest number of positions to draw, int[B].
        keys: the stream of each sequence, uint64[B].
        max_predictions_per_seq: the width P of the result.

    Returns:
        The positions and whether they are real, as from `draw_positions`.
    """
    rows = len(candidates)
    unit = np.cumsum(unit_starts, axis=1, dtype=np.int32)
    num_units = int(unit[:, -1].max(initial=1))
    # Make `unit` the index of each position's unit in the flat [B, U].
    np.maximum(unit, 1, out=unit)
    row_offsets = np.arange(rows, dtype=np.int32) * num_units - 1
    unit += row_offsets[:, None]
    sizes = np.bincount(unit[candidates], minlength=rows * num_units)
    sizes = sizes.reshape(rows, num_units)
    order = _draw_unit_order(sizes, keys)
    first = order
    if max_predictions_per_seq < num_units:
        first = np.partition(order, max_predictions_per_seq, axis=1)
        first = first[:, :max_predictions_per_seq]
    first = np.sort(first, axis=1)
    # Take all units up to the first one that does not fit.
    totals = np.cumsum(
        first & _SIZE,
        axis=1,
        dtype=np.int64,
    )
    num_first = _count_true(totals <= num_masked[:, None])
    is_chosen = order <= _take_last(first, num_first)
    total = _take_last(totals, num_first)[:, 0]
    _fill_rooms(
        is_chosen,
        total,
        order,
        sizes,
        num_masked,
    )
    is_chosen_position = is_chosen.ravel()[unit] & candidates
    return _pack_left(is_chosen_position, max_predictions_per_seq)


def _draw_unit_order(sizes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Returns sort keys that put units, int64[B, U] sizes, into random order: uint64[B, U].

    Units of size 0, which a row has in excess, are the last ones, too large to fit.
    """
    num_units = sizes.shape[1]
    order = _draw_numbers(keys, _ORDER, num_units)
    order &= _RANDOM_BITS
    order |= np.arange(num_units, dtype=np.uint64) << _NUMBER_SHIFT
    order |= sizes.astype(np.uint64)
    order[sizes == 0] = _LAST
    return order


def _fill_rooms(
    is_chosen: np.ndarray,
    total: np.ndarray,
    order: np.ndarray,
    sizes: np.ndarray,
    num_masked: np.ndarray,
):
    """Adds the next unit that fits to each row, again and again, until none fits.

    `is_chosen`, bool[B, U], and `total`, the positions of the chosen units, int64[B], are changed
    in place.
    """
    unfilled = np.flatnonzero(total < num_masked)
    while len(unfilled):
        room = (num_masked - total)[unfilled]
        keys_left = order[unfilled]
        is_too_large = (keys_left & _SIZE) > room[:, None]
        is_excluded = is_chosen[unfilled] | is_too_large
        fits = np.where(is_excluded, _LAST, keys_left)
        chosen = fits.argmin(axis=1)
        has_fit = fits[np.arange(len(unfilled)), chosen] != _LAST
        unfilled = unfilled[has_fit]
        chosen = chosen[has_fit]
        is_chosen[unfilled, chosen] = True
        total[unfilled] += sizes[unfilled, chosen]
        has_room = total[unfilled] < num_masked[unfilled]
        unfilled = unfilled[has_room]


def span_starts(
    word_starts: np.ndarray,
    longest: int,
    keys: np.ndarray,
) -> np.ndarray:
    """Joins words into spans; a length of n words has a probability in proportion to 1 / n.

    Args:
        word_starts: the first positions of the words, bool[B, S].
        longest: the largest number of words in a span.
        keys: the stream of each sequence, uint64[B].

    Returns:
        The first positions of the spans, bool[B, S].
    """
    num_positions = word_starts.shape[1]
    shares = 1 / np.arange(1, longest + 1)
    limits = np.cumsum(shares / shares.sum())
    words = _draw_numbers(keys, _SPAN_LENGTHS, num_positions)
    fractions = random_streams.uniform(words)
    # The length in words of a span that would begin at each position.
    lengths = np.ones(fractions.shape, np.int32)
    for limit in limits[:-1]:
        lengths += fractions >= limit
    # Go from positions to numbers of words, [words, B].
    num_words = _count_true(word_starts)
    is_word = length_mask(num_words, num_positions)
    span_lengths = np.zeros(fractions.shape, np.int32)
    span_lengths[is_word] = lengths[word_starts]
    span_lengths = np.ascontiguousarray(span_lengths.T)
    begins = np.zeros(span_lengths.shape, bool)
    next_begin = np.zeros(len(keys), np.int32)
    most_words = num_words.max(initial=0)
    for word in range(most_words):
        begins_here = begins[word]
        np.equal(next_begin, word, out=begins_here)
        np.add(
            next_begin,
            span_lengths[word],
            out=next_begin,
            where=begins_here,
        )
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
    """Draws the ids that replace the predicted tokens: [MASK], a random word, or the token itself.

    Args:
        tokens: the ids of the predicted tokens, int[B, P].
        keys: the stream of each sequence, uint64[B].
        mask_id: the id of [MASK].
        word_ids: the ids from which random words are drawn, int[words].
        mask_token_rate: the share of the tokens that become [MASK].
        random_token_rate: the share of the tokens that become a random word.

    Returns:
        int[B, P].
    """
    words = _draw_numbers(keys, _REPLACEMENTS, tokens.shape[1])
    choice = words.astype(np.uint32)  # The last 32 bits; the first ones draw the random word.
    random_words = word_ids[random_streams.below(words, len(word_ids))]
    change_rate = mask_token_rate + random_token_rate
    is_changed = choice < change_rate * 2.0**32
    is_mask = choice < mask_token_rate * 2.0**32
    replaced = np.where(is_changed, random_words, tokens)
    return np.where(is_mask, mask_id, replaced)


def _draw_numbers(keys: np.ndarray, first: int, count: int) -> np.ndarray:
    """Draws the numbers from `first` on of each stream: uint64[B, count]."""
    return random_streams.draw(keys[:, None], first + np.arange(count))


def _count_true(values: np.ndarray) -> np.ndarray:
    """Returns int64[B]: how many of bool[B, S] are true in each row."""
    return np.add.reduce(values, axis=1, dtype=np.int64)


def _take_last(rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns [B, 1]: the last of the first `counts` values of each row, or 0 if there is none."""
    counts = counts[:, None]
    columns = np.maximum(counts - 1, 0)
    values = np.take_along_axis(rows, columns, axis=1)
    return values * (counts > 0)


def _pack_left(is_chosen: np.ndarray, width: int) -> Positions:
    """Returns the true positions of bool[B, S] in int64[B, width], and whether they are real.

    Padding is 0, and false.
    """
    is_filled = length_mask(_count_true(is_chosen), width)
    positions = np.zeros(is_filled.shape, np.int64)
    positions[is_filled] = np.flatnonzero(is_chosen) % is_chosen.shape[1]
    return positions, is_filled


class Masker:
    """Draws the masks of many sequences and replaces their tokens."""

    def __init__(self, vocabulary: InstanceVocabulary, config: MaskConfig):
        self._config = config
        self._mask_id = vocabulary.mask_id
        self._word_ids = np.array(vocabulary.word_ids, np.int32)
        self._continues = np.array(vocabulary.continues)

    def mask(
        self,
        input_ids: np.ndarray,
        candidates: np.ndarray,
        lengths: np.ndarray,
        keys: np.ndarray,
    ) -> tuple[dict[str, np.ndarray], dict[str, int]]:
        """Replaces tokens in place, and counts what became of them.

        Args:
            input_ids: the ids of the tokens, int[B, S], which are changed.
            candidates: whether a position may be masked, bool[B, S].
            lengths: the number of tokens of each sequence, int[B].
            keys: the stream of each sequence, uint64[B].

        Returns:
            masked_lm_positions, masked_lm_ids and masked_lm_weights, [B, P] each, and counts by
            name.
        """
        features, replaced = self.masked(input_ids, candidates, lengths, keys)
        originals = features["masked_lm_ids"]
        is_predicted = features["masked_lm_weights"]
        is_mask = is_predicted & (replaced == self._mask_id)
        is_same = is_predicted & (replaced == originals)
        is_kept = is_same & ~is_mask
        counts = {
            "predictions": int(is_predicted.sum()),
            "predictions_masked": int(is_mask.sum()),
            "predictions_kept": int(is_kept.sum()),
        }
        return features, counts

    def masked(
        self,
        input_ids: np.ndarray,
        candidates: np.ndarray,
        lengths: np.ndarray,
        keys: np.ndarray,
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Does what `mask` does, without counting.

        Args:
            input_ids: the ids of the tokens, int[B, S], which are changed.
            candidates: whether a position may be masked, bool[B, S].
            lengths: the number of tokens of each sequence, int[B].
            keys: the stream of each sequence, uint64[B].

        Returns:
            The features that `mask` returns, and the ids that the predicted tokens became,
            int[B, P].
        """
        positions, is_predicted = self._draw_positions(
            input_ids,
            candidates,
            lengths,
            keys,
        )
        rows, length = input_ids.shape
        row_offsets = np.arange(0, rows * length, length)
        flat_positions = positions + row_offsets[:, None]
        originals = input_ids.ravel()[flat_positions]
        masked_lm_ids = originals * is_predicted
        replaced = draw_replacements(
            masked_lm_ids,
            keys,
            self._mask_id,
            self._word_ids,
            mask_token_rate=self._config.mask_token_rate,
            random_token_rate=self._config.random_token_rate,
        )
        np.put(
            input_ids,
            flat_positions[is_predicted],
            replaced[is_predicted],
        )
        features = {
            "masked_lm_positions": positions,
            "masked_lm_ids": masked_lm_ids,
            "masked_lm_weights": is_predicted,
        }
        return features, replaced

    def _draw_positions(
        self,
        input_ids: np.ndarray,
        candidates: np.ndarray,
        lengths: np.ndarray,
        keys: np.ndarray,
    ) -> Positions:
        config = self._config
        most = config.max_predictions_per_seq
        count = num_predictions(lengths, config.masked_lm_prob, most)
        if not config.do_whole_word_mask:
            return draw_positions(candidates, count, keys, most)
        starts = candidates & ~self._continues[input_ids]
        starts[:, 1] |= candidates[:, 1]  # A piece "##x" without a piece before it is a word.
        if config.ngram_masking > 1:
            starts = span_starts(starts, config.ngram_masking, keys)
        return draw_units(starts, candidates, count, keys, most)


class DynamicMasks:
    """Masks the batches of records without masks.

    Each pass over the data has other masks. They are the same ones in each run with the seed.
    """

    def __init__(
        self,
        vocabulary: InstanceVocabulary,
        config: MaskConfig,
        seed: int,
    ):
        self._masker = Masker(vocabulary, config)
        self._seed = seed
        self._special_ids = vocabulary.cls_id, vocabulary.sep_id
        self.max_predictions_per_seq = config.max_predictions_per_seq

    def __call__(
        self,
        input_ids: np.ndarray,
        input_mask: np.ndarray,
        passes: np.ndarray,
        records: np.ndarray,
    ) -> tuple[np.ndarray, ...]:
        """Masks a batch.

        Args:
            input_ids: the ids of the tokens, int32[B, S].
            input_mask: 1 for tokens and 0 for padding, int32[B, S].
            passes: the number of the pass over the data, int64[B].
            records: the hash of each record, int64[B].

        Returns:
            The features NAMES: int32[B, S], int32[B, P], int32[B, P] and float32[B, P].
        """
        ids = np.array(input_ids)
        candidates = input_mask > 0
        for special in self._special_ids:
            candidates &= ids != special
        lengths = input_mask.sum(axis=1)
        keys = random_streams.stream(self._seed, passes, records)
        features, _ = self._masker.masked(ids, candidates, lengths, keys)
        features["input_ids"] = ids
        return tuple(
            features[name].astype(dtype) for name, dtype in zip(NAMES, DTYPES, strict=True)
        )
