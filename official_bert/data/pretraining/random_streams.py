"""Random numbers of many independent streams at once, without a state.

A stream is a 64-bit key. Its numbers are the outputs of SplitMix64 (Steele, Lea and Flood, 2014)
from that key on. Number k depends on the key and k alone, so the numbers of a stream can be drawn
in any order and in any process.
"""

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# The rounds of `_mix`: a shift, and the factor that follows it.
_ROUNDS = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST_SHIFT = np.uint64(31)
_WORD_BITS = 64
_WORD_MASK = (1 << _WORD_BITS) - 1
_HALF_WORD = np.uint64(32)
_NON_FRACTION_BITS = np.uint64(11)  # A float64 has 53 bits of fraction.
_MOST_TRIALS = 1 << 12
_MOST_WORDS = _MOST_TRIALS // _WORD_BITS


def stream(*parts: int | np.ndarray) -> np.ndarray:
    """Computes the keys of streams from parts that identify them, such as a seed and documents.

    Args:
        parts: an int, of which the last 64 bits count, or int[n]. Other parts, or the same parts in
            another order, give another stream.

    Returns:
        uint64[n]; n is 1 if all parts are numbers.
    """
    key = np.zeros(1, np.uint64)  # An array, because numpy warns of scalars that wrap around.
    for part in parts:
        if isinstance(part, int):
            part &= _WORD_MASK
        bits = _to_words(part)
        part_key = _mix(bits + _GOLDEN)
        key = _mix(key + part_key)
    return key


def draw(streams: np.ndarray, number: int | np.ndarray) -> np.ndarray:
    """Draws one number of each stream.

    Args:
        streams: the keys, uint64[...].
        number: the number of the draw in its stream, from 0: an int or int[...].

    Returns:
        uint64 of the shape to which both are broadcast.
    """
    steps = _to_words(number)
    steps += np.uint64(1)
    return _mix(streams + steps * _GOLDEN)


def uniform(words: np.ndarray) -> np.ndarray:
    """Converts random words to numbers in [0, 1).

    Args:
        words: the words, uint64[...].

    Returns:
        float64[...].
    """
    fractions = words >> _NON_FRACTION_BITS
    return fractions * 2.0**-53


def below(words: np.ndarray, limits: int | np.ndarray) -> np.ndarray:
    """Converts random words to integers in [0, limit).

    All results are equally likely up to a relative error of limit / 2^32.

    Args:
        words: the words, uint64[...].
        limits: the limit of each result, int[...], or one limit for all.

    Returns:
        int64 of the shape to which both are broadcast.
    """
    limits = np.asarray(limits)
    limits = limits.astype(np.uint64)
    products = (words >> _HALF_WORD) * limits
    results = products >> _HALF_WORD
    return results.astype(np.int64)


def binomial(
    streams: np.ndarray,
    first: int,
    num_trials: np.ndarray,
) -> np.ndarray:
    """Counts the successes of trials that succeed with probability 1/2.

    Above 4096 trials the count is scaled up from that many, with the right mean and variance.

    Args:
        streams: the stream that decides each count, uint64[n].
        first: the number of the first draw in each stream.
        num_trials: the number of trials, int[n].

    Returns:
        int64[n].
    """
    successes = np.zeros(len(num_trials), np.int64)
    # Few counts need more than the first word.
    for first_word, end_word in ((0, 1), (1, _MOST_WORDS)):
        has_trials = num_trials > _WORD_BITS * first_word
        rows = np.flatnonzero(has_trials)
        if len(rows):
            row_trials = num_trials[rows, None]
            most_trials = int(row_trials.max())
            num_words = -(-most_trials // _WORD_BITS)
            words = np.arange(first_word, min(end_word, num_words))
            bits = draw(streams[rows, None], first + words)
            num_used_bits = np.clip(
                row_trials - _WORD_BITS * words,
                0,
                _WORD_BITS,
            )
            successes[rows] += _count_ones(bits, num_used_bits)
    deviations = successes - _MOST_TRIALS / 2
    scale = np.sqrt(num_trials / _MOST_TRIALS)
    scaled = np.rint(num_trials / 2 + deviations * scale)
    return np.where(
        num_trials > _MOST_TRIALS,
        scaled.astype(np.int64),
        successes,
    )


def _count_ones(words: np.ndarray, num_used_bits: np.ndarray) -> np.ndarray:
    """Returns int64[n]: how many of the first used bits of uint64[n, words] are 1, in each row."""
    shifts = _WORD_BITS - np.maximum(num_used_bits, 1)
    shifts = shifts.astype(np.uint64)
    is_used = num_used_bits > 0
    used_bits = np.where(is_used, words >> shifts, 0)
    counts = np.bitwise_count(used_bits)
    return counts.sum(axis=1, dtype=np.int64)


def _to_words(values: int | np.ndarray) -> np.ndarray:
    """Returns the values in a new array, uint64[...] with one axis at least."""
    return np.atleast_1d(values).astype(np.uint64)


def _mix(words: np.ndarray) -> np.ndarray:
    """Mixes the bits of the words in place, a bijection of 64 bits, and returns them."""
    shifted = np.empty_like(words)
    for shift, factor in _ROUNDS:
        np.right_shift(words, shift, out=shifted)
        words ^= shifted
        words *= factor
    np.right_shift(words, _LAST_SHIFT, out=shifted)
    words ^= shifted
    return words
