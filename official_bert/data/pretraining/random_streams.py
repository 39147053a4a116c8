"""Random numbers of many independent streams at once, without a state.

A stream is a 64-bit key, and its numbers are the outputs of SplitMix64 (Steele, Lea and Flood,
2014) from that key on: number k is a function of the key and k alone, whatever other numbers are
drawn, in any order and process.
"""

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MOST_TRIALS = 1 << 12


def stream(*parts: int | np.ndarray) -> np.ndarray:
    """Returns the keys of streams, uint64[n], which ordered parts tell apart, such as a seed and
    numbers of documents.

    Each part is an int, of which the last 64 bits count, or int[n]; n is 1 if all parts are
    numbers.
    """
    key = np.zeros(1, np.uint64)  # An array, because numpy warns of scalars that wrap around.
    for part in parts:
        values = part % (1 << 64) if isinstance(part, int) else part
        bits = np.atleast_1d(values).astype(np.uint64)
        key = _mixed(key + _mixed(bits + _GOLDEN))
    return key


def draw(streams: np.ndarray, number: int | np.ndarray) -> np.ndarray:
    """Returns uint64[...]: number `number` (from 0) of each stream; the shapes are broadcast."""
    steps = np.atleast_1d(number).astype(np.uint64) + np.uint64(1)
    return _mixed(streams + steps * _GOLDEN)


def uniform(words: np.ndarray) -> np.ndarray:
    """Returns float64 in [0, 1) of random words, uint64."""
    return (words >> np.uint64(11)) * 2.0**-53


def below(words: np.ndarray, limits: int | np.ndarray) -> np.ndarray:
    """Returns int64 in [0, limit) of random words, uint64, equally likely up to a relative error
    of limit / 2^32.
    """
    limits = np.asarray(limits).astype(np.uint64)
    return ((words >> np.uint64(32)) * limits >> np.uint64(32)).astype(np.int64)


def binomial(streams: np.ndarray, first: int, num_trials: np.ndarray) -> np.ndarray:
    """Returns int64[n]: how many of int[n] trials succeed with probability 1/2, by one stream each,
    uint64[n].

    Above 4096 trials the number is scaled up from that many, with the right mean and variance.
    """
    successes = np.zeros(len(num_trials), np.int64)
    # Few numbers need more than the first word.
    for begin, end in ((0, 1), (1, _MOST_TRIALS // 64)):
        rows = np.flatnonzero(num_trials > 64 * begin)
        if len(rows):
            words = np.arange(begin, min(end, -(-int(num_trials[rows].max()) // 64)))
            num_bits = np.clip(num_trials[rows, None] - 64 * words, 0, 64)  # used of each word
            bits = draw(streams[rows, None], first + words)
            shifts = (64 - np.maximum(num_bits, 1)).astype(np.uint64)
            bits = np.where(num_bits > 0, bits >> shifts, 0)
            successes[rows] += np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
    deviations = successes - _MOST_TRIALS / 2
    scaled = num_trials / 2 + deviations * np.sqrt(num_trials / _MOST_TRIALS)
    return np.where(num_trials > _MOST_TRIALS, np.rint(scaled).astype(np.int64), successes)


def _mixed(words: np.ndarray) -> np.ndarray:
    """Mixes the bits of the words, an array of the caller's own, and returns it: a bijection of
    64 bits.
    """
    shifted = np.empty_like(words)
    for shift, factor in zip(_SHIFTS, _FACTORS, strict=False):
        words ^= np.right_shift(words, shift, out=shifted)
        words *= factor
    words ^= np.right_shift(words, _SHIFTS[-1], out=shifted)
    return words
