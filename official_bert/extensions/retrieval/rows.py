"""The vectors of a corpus as a search reads them: fast cosines of a block, and exact rows."""

from __future__ import annotations

import abc
from typing import Self

import numpy as np

from official_bert.extensions.retrieval.small_vectors import find_centres, find_steps
from official_bert.metrics.cosines import find_norms

_NORM_ROWS = 1 << 14  # The vectors whose norms are computed at a time.
_PIECE_ROWS = 1 << 11  # The int8 vectors whose float32 values fit into the cache of a processor.
WINDOW_ROWS = 1 << 16  # The int8 vectors of a compiled product, whose shape is always the same.
FEW_QUERIES = 8  # With more queries, the conversion of int8 vectors is a small part of the time.


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
        pieces = []
        for first in range(0, len(block), _NORM_ROWS):
            piece = block.block(first, first + _NORM_ROWS)
            key = (start + first, len(piece))
            if key not in self._norms:
                self._norms[key] = find_norms(piece[:], np.float32)
            pieces.append(self._norms[key])
        return np.concatenate(pieces)


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

    def __init__(self, codes: np.ndarray, ranges: np.ndarray, window: np.ndarray | None = None):
        """Creates the rows.

        Args:
            codes: int8[n, width].
            ranges: the ranges of the components, float32[2, width].
            window: the codes with those of some rows before them, int8[m, width]; None for none.
        """
        super().__init__(codes)
        self._ranges = ranges
        self._window = codes if window is None else window
        self._steps = find_steps(ranges)
        self._centres = find_centres(ranges)

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        vectors = self._codes[rows].astype(np.float32)
        vectors *= self._steps
        vectors += self._centres
        return vectors

    def block(self, start: int, end: int) -> Self:
        # The last block of a corpus is filled up to the size of the others.
        end = min(end, len(self))
        first = min(start, max(end - WINDOW_ROWS, 0))
        return type(self)(self._codes[start:end], self._ranges, self._codes[first:end])

    def products(self, queries: np.ndarray) -> np.ndarray:
        scaled_queries = queries * self._steps
        if len(queries) > FEW_QUERIES:
            products = scaled_queries @ self._codes.astype(np.float32).T
        else:
            products = self._multiply_few(scaled_queries)
        products += (queries @ self._centres)[:, None]
        return products

    def _multiply_few(self, queries: np.ndarray) -> np.ndarray:
        """Returns the products of few queries with the codes, float32[q, n]."""
        if len(self._window) == WINDOW_ROWS:
            from official_bert.extensions.retrieval import compiled_products

            products = np.stack(
                [compiled_products.multiply(query, self._window) for query in queries],
            )
            return products[:, -len(self) :]
        num_rows = len(self)
        products = np.empty((len(queries), num_rows), np.float32)
        # All pieces use this memory, because new memory costs more than the conversion.
        shape = (_PIECE_ROWS, self.width)
        buffer = np.empty(shape, np.float32)
        for start in range(0, num_rows, _PIECE_ROWS):
            end = min(start + _PIECE_ROWS, num_rows)
            vectors = buffer[: end - start]
            np.copyto(vectors, self._codes[start:end])
            for query, query_products in zip(queries, products, strict=True):
                np.vecdot(
                    vectors,
                    query,
                    out=query_products[start:end],
                )
        return products
