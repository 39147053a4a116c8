"""Search of binary vectors: the Hamming distance finds candidates, and cosines order them.

A cosine is that of the query in float32 and the signs of a vector.
"""

from __future__ import annotations

import concurrent.futures
import os

import numpy as np

from official_bert.extensions.retrieval.small_vectors import decode_binary, encode_binary
from official_bert.metrics.cosines import all_cosines

_BLOCK_ROWS = 1 << 13  # The rows whose distances fit into the cache of a processor.
_QUERY_ROWS = 1 << 4  # The queries whose distances are in memory at a time.
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
    corpus_words = _to_words(codes)
    shape = (len(queries), k)
    scores = np.empty(shape, np.float32)
    rows = np.empty(shape, np.int64)
    for start in range(0, len(queries), _QUERY_ROWS):
        end = start + _QUERY_ROWS
        all_distances = _distances(query_words[start:end], corpus_words)
        for number, distances in enumerate(all_distances, start):
            candidates = _nearest(distances, num_candidates)
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


def _distances(queries: np.ndarray, corpus: np.ndarray) -> np.ndarray:
    """Returns the Hamming distances of all pairs, uint16[q, n], of words [q, w] and [n, w]."""
    num_queries = len(queries)
    num_rows = len(corpus)
    distances = np.zeros(
        (num_queries, num_rows),
        np.uint16,
    )

    def add_block(start: int):
        end = start + _BLOCK_ROWS
        # A row for each word, so that the operations run over neighbours in the memory.
        block = corpus[start:end]
        columns = np.ascontiguousarray(block.T)
        for query, query_distances in zip(queries, distances, strict=True):
            total = query_distances[start:end]
            for word, column in zip(query, columns, strict=True):
                differences = column ^ word
                total += np.bitwise_count(differences)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        starts = range(0, num_rows, _BLOCK_ROWS)
        for _ in pool.map(add_block, starts):
            pass
    return distances


def _nearest(distances: np.ndarray, count: int) -> np.ndarray:
    """Returns the rows of the lowest distances; of equal ones those that come first."""
    counts = np.bincount(distances)
    totals = np.cumsum(counts)
    limit = np.searchsorted(totals, count)  # the distance of the last candidate
    nearer = np.flatnonzero(distances < limit)
    equal = np.flatnonzero(distances == limit)
    num_missing = count - len(nearer)
    rows = np.concatenate(
        [nearer, equal[:num_missing]],
    )
    rows.sort()
    return rows
