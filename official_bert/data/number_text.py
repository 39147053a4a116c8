"""Writes vectors as JSON text with at most six decimals.

The text equals json.dumps([round(float(x), 6) for x in vector]), character for character. It takes a sixth of the
time, because numpy computes the digits.
"""

import json
from collections.abc import Iterator

import numpy as np

_DECIMALS = 6
_POINT = 4  # a number's characters: sign, three digits, point, six decimals, comma, space
_COMMA = _POINT + _DECIMALS + 1
_WIDTH = _COMMA + 2
# In millionths. Python writes smaller numbers other than 0 with an exponent, and larger ones have more than three
# digits before the point.
_SMALLEST, _TOO_LARGE = 100, 10**9
_ROWS_AT_ONCE = 64  # the digits of 64 vectors fit in the processor's cache


def json_vectors(vectors: np.ndarray) -> Iterator[str]:
    """Yields the N rows of float32[N, H] as JSON arrays such as "[0.5, -1.25, 0.000123]"."""
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        # A float64 holds a float32 times 10^6 exactly, so this rounds as round() does, ties to even.
        millionths = np.rint(vectors[start : start + _ROWS_AT_ONCE].astype(np.float64) * 10**_DECIMALS)
        size = np.abs(millionths)
        usual = (((size >= _SMALLEST) & (size < _TOO_LARGE)) | (size == 0)).all(axis=1)
        texts = iter(_digits(size[usual].astype(np.uint32), np.signbit(millionths[usual])))
        for row, is_usual in enumerate(usual):
            yield next(texts) if is_usual else json.dumps((millionths[row] / 10**_DECIMALS).tolist())


def _digits(size: np.ndarray, negative: np.ndarray) -> list[str]:
    """Writes uint32[N, H] millionths below 10^9, negative where bool[N, H] says so, as N JSON arrays."""
    text = np.empty((*size.shape, _WIDTH), np.uint8)  # [N, H, width]
    kept = np.ones(text.shape, bool)
    text[..., 0] = ord("-")
    kept[..., 0] = negative
    text[..., _POINT] = ord(".")
    text[..., _COMMA:] = ord(","), ord(" ")
    kept[:, -1:, _COMMA:] = False

    rest, nonzero_after = size, np.zeros(size.shape, bool)
    for index in range(_COMMA - 1, _POINT, -1):
        rest, digit = rest // 10, rest % 10
        nonzero_after |= digit > 0
        text[..., index] = digit + ord("0")
        kept[..., index] = nonzero_after | (index == _POINT + 1)  # trailing zeros go, but 1.0 keeps one
    for index in range(_POINT - 1, 0, -1):
        kept[..., index] = (rest > 0) | (index == _POINT - 1)  # leading zeros go, but 0.5 keeps one
        rest, digit = rest // 10, rest % 10
        text[..., index] = digit + ord("0")

    characters = text[kept].tobytes().decode("ascii")
    ends = np.cumsum(kept.sum(axis=(1, 2))).tolist()
    return [f"[{characters[begin:end]}]" for begin, end in zip([0, *ends], ends, strict=False)]
