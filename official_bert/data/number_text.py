"""Vectors as JSON text, six decimals a number, fast.

The text is what json.dumps makes of [round(float(x), 6) for x in vector], character for character, at a sixth of the
time: the digits are worked out by numpy.
"""

import json
from collections.abc import Iterator

import numpy as np

_DECIMALS = 6
_POINT = 4  # a number's characters: sign, three digits, point, six decimals, comma, space
_COMMA = _POINT + _DECIMALS + 1
_WIDTH = _COMMA + 2
# In millionths. Below (0 aside) Python turns to exponents, above there are more digits than we have room for.
_SMALLEST, _TOO_LARGE = 100, 10**9
_ROWS_AT_ONCE = 64  # the digits of so many vectors stay in the processor's cache


def json_vectors(vectors: np.ndarray) -> Iterator[str]:
    """JSON arrays of float32[N, H]: N texts such as "[0.5, -1.25, 0.000123]"."""
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        # Exact: a float32 times 10^6 fits a float64, so this rounds as round() does, ties to even.
        millionths = np.rint(vectors[start : start + _ROWS_AT_ONCE].astype(np.float64) * 10**_DECIMALS)
        size = np.abs(millionths)
        usual = (((size >= _SMALLEST) & (size < _TOO_LARGE)) | (size == 0)).all(axis=1)
        texts = iter(_digits(size[usual].astype(np.uint32), np.signbit(millionths[usual])))
        for row, is_usual in enumerate(usual):
            yield next(texts) if is_usual else json.dumps((millionths[row] / 10**_DECIMALS).tolist())


def _digits(size: np.ndarray, negative: np.ndarray) -> list[str]:
    """JSON arrays of uint32[N, H] millionths below 10^9 with their signs, bool[N, H]."""
    text = np.empty((*size.shape, _WIDTH), np.uint8)  # [N, H, width]
    kept = np.ones(text.shape, bool)
    text[..., 0] = ord("-")
    kept[..., 0] = negative
    text[..., _POINT] = ord(".")
    text[..., _COMMA:] = ord(","), ord(" ")
    kept[:, -1:, _COMMA:] = False

    rest, nonzero_after = size, np.zeros(size.shape, bool)
    for place in range(_COMMA - 1, _POINT, -1):
        rest, digit = rest // 10, rest % 10
        nonzero_after |= digit > 0
        text[..., place] = digit + ord("0")
        kept[..., place] = nonzero_after | (place == _POINT + 1)  # zeros at the end go, but 1.0 keeps one
    for place in range(_POINT - 1, 0, -1):
        kept[..., place] = (rest > 0) | (place == _POINT - 1)  # zeros in front go, but 0.5 keeps one
        rest, digit = rest // 10, rest % 10
        text[..., place] = digit + ord("0")

    characters = text[kept].tobytes().decode("ascii")
    ends = np.cumsum(kept.sum(axis=(1, 2))).tolist()
    return [f"[{characters[begin:end]}]" for begin, end in zip([0, *ends], ends, strict=False)]
