"""The vectors of a corpus as a search reads them: fast cosines of a block, and exact rows."""

from __future__ import annotations

import abc
from typing import Self

import numpy as np

from official_bert.extensions.retrieval.small_vectors import find_centres, find_steps
from official_bert.metrics.cosines import find_norms


class Rows(abc.ABC):
    """Vectors that are read in blocks.

    Attributes:
        width: the number of components.
        error_scale: the largest error of `products`, relative to that of float32 vectors.
    """

    error_scale = 1

    def __init__(self, codes: np.ndarray):
        self._codes = codes
        self._norms: dict[tuple[int, int], np.ndarray] = {}
        self.width = codes.shape[1]

    def __len__(self) -> int:
        return len(self._codes)

    @abc.abstractmethod
    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """Returns vectors, float32[n, width]."""

    @abc.abstractmethod
    def block(self, start: int, end: int) -> Rows:
        """Returns some of the vectors.

        Args:
            start: the first row.
            end: the row behind the last one.
        """

    @abc.abstractmethod
    def products(self, queries: np.ndarray) -> np.ndarray:
        """Returns the products with all vectors, rounded as float32, float32[q, n].

        Args:
            queries: float32[q, width].
        """

    def block_norms(self, block: Rows, start: int) -> np.ndarray:
        """Returns the norms of a block, float32[n], which are computed once.

        Args:
            block: the result of `block`.
            start: its first row.

        Raises:
            Diverged: a number is not finite.
        """
        key = (start, len(block))
        if key not in self._norms:
            self._norms[key] = find_norms(block[:], np.float32)
        return self._norms[key]


class FloatRows(Rows):
    """Vectors of float32, an array or a np.memmap."""

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        return np.asarray(self._codes[rows])

    def block(self, start: int, end: int) -> Self:
        return type(self)(np.asarray(self._codes[start:end]))

    def products(self, queries: np.ndarray) -> np.ndarray:
        return queries @ self[:].T


class Int8Rows(Rows):
    """Vectors of 8 bits for each component. A component counts as the middle of its step."""

    error_scale = 8

    def __init__(self, codes: np.ndarray, ranges: np.ndarray):
        """Creates the rows.

        Args:
            codes: int8[n, width].
            ranges: the ranges of the components, float32[2, width].
        """
        super().__init__(codes)
        self._ranges = ranges
        self._steps = find_steps(ranges)
        self._centres = find_centres(ranges)

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        vectors = self._codes[rows].astype(np.float32)
        vectors *= self._steps
        vectors += self._centres
        return vectors

    def block(self, start: int, end: int) -> Self:
        return type(self)(self._codes[start:end], self._ranges)

    def products(self, queries: np.ndarray) -> np.ndarray:
        codes = self._codes.astype(np.float32)
        products = (queries * self._steps) @ codes.T
        products += (queries @ self._centres)[:, None]
        return products
