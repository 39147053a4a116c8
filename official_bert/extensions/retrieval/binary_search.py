"""Search of binary vectors: the Hamming distance finds candidates, and cosines order them.

A cosine is that of the query in float32 and the signs of a vector.
"""

from __future__ import annotations

import concurrent.futures
import os
import threading

import numpy as np

from official_bert.extensions.retrieval.small_vectors import decode_binary, encode_binary
from official_bert.metrics.cosines import all_cosines

_BLOCK_ROWS = 1 << 13  # The rows whose words fit into the cache of a processor.
_LARGEST_DISTANCE = np.iinfo(np.uint16).max
# A ranking of k rows is cut when it has this many times as many.
_SPARE = 8
_WORD_BYTES = 8


def search_binary(
    queries: np.ndarray, codes: np.ndarray, k: int, rescore: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    """Find the rows of a corpus with the highest cosines to each query, best first.

    Args:
        queries: float32[q, width].
        codes: the signs of the corpus, uint8[n, width / 8].
        k: the number of rows for a query; n if it is larger.
        rescore: the number of candidates for each row of a result.

    Returns:
        The cosines, float32[q, k], and the rows, int64[q, k].
    """
    k = min(k, len(codes))
    num_candidates = min(k * rescore, len(codes))
    query_words = _to_words(encode_binary(queries))
    rankings = _find_nearest(query_words, _to_words(codes), num_candidates)
    shape = (len(queries), k)
    scores = np.empty(shape, np.float32)
    rows = np.empty(shape, np.int64)
    for number, ranking in enumerate(rankings):
        candidates = ranking.finish()
        signs = decode_binary(codes[candidates])
        query = queries[number : number + 1]
        cosines = all_cosines(query, signs)[0]
        order = np.lexsort((candidates, -cosines))
        order = order[:k]
        scores[number] = cosines[order]
        rows[number] = candidates[order]
    return scores, rows


def _to_words(codes: np.ndarray) -> np.ndarray:
    """Returns the bits in words of 64, uint64[n, words], filled with zeros."""
    missing = -codes.shape[1] % _WORD_BYTES
    widths = ((0, 0), (0, missing))
    padded = np.pad(codes, widths) if missing else codes
    contiguous = np.ascontiguousarray(padded)
    return contiguous.view(np.uint64)


def _find_nearest(queries: np.ndarray, corpus: np.ndarray, count: int) -> list[_Ranking]:
    """Returns for each query the rows with the lowest distances, of words [q, w] and [n, w]."""
    rankings = [_Ranking(count) for _ in queries]
    num_words = corpus.shape[1]

    def read_blocks(starts: np.ndarray) -> None:
        # Memory that all blocks of a thread use, because new memory costs more than the operations.
        shape = (num_words, _BLOCK_ROWS)
        differences = np.empty(shape, np.uint64)
        bits = np.empty(shape, np.uint8)
        distances = np.empty(_BLOCK_ROWS, np.uint16)
        for start in starts:
            end = start + _BLOCK_ROWS
            block = corpus[start:end]
            # A row for each word, so that the operations run over neighbours in the memory.
            columns = np.ascontiguousarray(block.T)
            length = len(block)
            block_differences = differences[:, :length]
            block_bits = bits[:, :length]
            block_distances = distances[:length]
            for query, ranking in zip(queries, rankings, strict=True):
                query_column = query[:, None]
                np.bitwise_xor(
                    columns,
                    query_column,
                    out=block_differences,
                )
                np.bitwise_count(
                    block_differences,
                    out=block_bits,
                )
                np.add.reduce(
                    block_bits,
                    axis=0,
                    dtype=np.uint16,
                    out=block_distances,
                )
                ranking.add(block_distances, start)

    num_threads = os.cpu_count() or 1
    starts = np.arange(0, len(corpus), _BLOCK_ROWS)
    parts = np.array_split(starts, num_threads)
    with concurrent.futures.ThreadPoolExecutor(num_threads) as pool:
        for _ in pool.map(read_blocks, parts):
            pass
    return rankings


class _Ranking:
    """The rows with the lowest distances so far, in any order; of equal distances the lower row.

    Threads add blocks in any order, which changes no result.
    """

    def __init__(self, count: int):
        self._count = count
        self._limit = _LARGEST_DISTANCE  # No row with a higher distance is among the best.
        self._distances: list[np.ndarray] = []
        self._rows: list[np.ndarray] = []
        self._num_rows = 0
        self._lock = threading.Lock()

    def add(self, distances: np.ndarray, start: int) -> None:
        """Adds the rows of a block.

        Args:
            distances: the distances of the rows, uint16[n].
            start: the first row.
        """
        if distances.min() > self._limit:
            return
        rows = np.flatnonzero(distances <= self._limit)
        near = distances[rows]
        with self._lock:
            self._distances.append(near)
            self._rows.append(start + rows)
            self._num_rows += len(rows)
            if self._num_rows > _SPARE * self._count:
                self._cut()

    def finish(self) -> np.ndarray:
        """Returns the rows in ascending order, int64[count]."""
        self._cut()
        return np.sort(self._rows[0])

    def _cut(self) -> None:
        """Drops the rows that are not among the best."""
        distances = np.concatenate(self._distances)
        rows = np.concatenate(self._rows)
        order = np.lexsort((rows, distances))
        order = order[: self._count]
        self._distances = [distances[order]]
        self._rows = [rows[order]]
        self._num_rows = len(order)
        if self._num_rows == self._count:
            self._limit = distances[order[-1]]
