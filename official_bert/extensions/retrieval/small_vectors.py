"""Vectors of 8 bits or of 1 bit for each component.

An int8 component is the number of one of 256 equal steps between the lowest and the highest value
of a sample, from -128. A binary component is the sign, packed in bytes. Both are those of
quantize_embeddings of sentence-transformers ("int8" and "ubinary").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from official_bert.extensions.retrieval.options import VECTOR_TYPES
from official_bert.io.errors import InputError
from official_bert.metrics.cosines import unit_vectors

FLOAT32, INT8, BINARY = VECTOR_TYPES
_NUM_STEPS = 255
_LOWEST_CODE = -128
# The vectors from which the ranges of int8 are measured; further ones are clipped to them.
_CALIBRATION_ROWS = 10_000


def find_ranges(vectors: np.ndarray) -> np.ndarray:
    """Return the lowest and the highest value of each component, float32[2, width].

    Args:
        vectors: float32[n, width].
    """
    return np.stack([vectors.min(axis=0), vectors.max(axis=0)])


def encode_int8(vectors: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Return vectors with 8 bits for each component, int8[n, width].

    Args:
        vectors: float32[n, width].
        ranges: the result of `find_ranges`.
    """
    numbers = np.floor((vectors - ranges[0]) / find_steps(ranges))
    return (np.clip(numbers, 0, _NUM_STEPS) + _LOWEST_CODE).astype(np.int8)


def encode_binary(vectors: np.ndarray) -> np.ndarray:
    """Return the signs of vectors, uint8[n, width / 8].

    Args:
        vectors: float32[n, width].
    """
    return np.packbits(vectors > 0, axis=-1)


def decode_binary(codes: np.ndarray) -> np.ndarray:
    """Return the signs as 1 and -1, float32[n, width].

    Args:
        codes: the result of `encode_binary`.
    """
    return np.unpackbits(codes, axis=-1).astype(np.float32) * 2 - 1


def find_steps(ranges: np.ndarray) -> np.ndarray:
    """Return the length of the steps of each component, float32[width].

    Args:
        ranges: the result of `find_ranges`.
    """
    steps = (ranges[1] - ranges[0]) / _NUM_STEPS
    return np.where(steps == 0, np.float32(1), steps)


def find_centres(ranges: np.ndarray) -> np.ndarray:
    """Return the middle of the step with the code 0 of each component, float32[width].

    Args:
        ranges: the result of `find_ranges`.
    """
    return ranges[0] + np.float32(0.5 - _LOWEST_CODE) * find_steps(ranges)


def cut_vectors(vectors: np.ndarray, width: int | None) -> np.ndarray:
    """Return the first components of vectors, divided by their norms.

    Args:
        vectors: float32[n, D].
        width: the number of components; None for all, which are returned as they are.

    Raises:
        InputError: the vectors have fewer components.
    """
    if width is None or not len(vectors):
        return vectors
    if width > vectors.shape[1]:
        raise InputError(
            f"--width={width}: the vectors of the model have {vectors.shape[1]} components; give "
            "a smaller number"
        )
    return unit_vectors(vectors[:, :width], np.float32)


class BlockEncoder:
    """Encodes the blocks of a corpus one after another.

    Attributes:
        ranges: the ranges of int8, float32[2, width]; None before they are measured, and for other
            types.
    """

    def __init__(self, vector_type: str, width: int | None = None):
        """Creates an encoder without blocks.

        Args:
            vector_type: one of VECTOR_TYPES.
            width: the number of components that are kept; None for all.
        """
        self.ranges: np.ndarray | None = None
        self._vector_type = vector_type
        self._width = width
        self._waiting: list[np.ndarray] = []
        self._blocks: list[np.ndarray] = []

    def add(self, vectors: np.ndarray) -> None:
        """Adds a block.

        Args:
            vectors: float32[n, D].

        Raises:
            InputError: the vectors have too few components, or binary ones no multiple of 8.
        """
        vectors = cut_vectors(vectors, self._width)
        if self._vector_type == FLOAT32:
            self._blocks.append(vectors)
        elif self._vector_type == BINARY:
            if vectors.shape[1] % 8:
                raise InputError(
                    f"--vector_type=binary: the vectors have {vectors.shape[1]} components, and 8 "
                    "share a byte; give a --width that is a multiple of 8"
                )
            self._blocks.append(encode_binary(vectors))
        elif self.ranges is not None:
            self._blocks.append(encode_int8(vectors, self.ranges))
        else:
            self._waiting.append(vectors)
            if sum(map(len, self._waiting)) >= _CALIBRATION_ROWS:
                self._calibrate()

    def finish(self) -> Sequence[np.ndarray]:
        """Returns the encoded blocks."""
        if self._waiting:
            self._calibrate()
        return self._blocks

    def _calibrate(self) -> None:
        self.ranges = find_ranges(np.concatenate(self._waiting))
        self._blocks += [encode_int8(block, self.ranges) for block in self._waiting]
        self._waiting = []
