"""Exact search by the cosine of vectors, and pairs of similar vectors.

In: float32[n, width], an array or a np.memmap, of which a block at a time is computed with. Out:
scores and rows that depend on no block: what float32 finds is computed again in float64, and of
equal scores the lower row comes first.
"""

from __future__ import annotations

import numpy as np

from official_bert.metrics.cosines import unit_vectors

_CORPUS_ROWS, _QUERY_ROWS, _PAIR_ROWS = 1 << 14, 1 << 8, 1 << 11
_EXACT_AT_ONCE = 1 << 12


def search(
    queries: np.ndarray,
    corpus: np.ndarray,
    k: int,
    corpus_rows: int = _CORPUS_ROWS,
    query_rows: int = _QUERY_ROWS,
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the `k` rows of float32[n, width] with the highest cosine to each query, float32[q,
    width], best first.

    Returns:
        The cosines, float32[q, k], and the rows, int64[q, k], with n in place of a larger k.
    """
    k = min(k, len(corpus))
    rough_queries = unit_vectors(queries, np.float32)
    bests = [_Best(k, corpus.shape[1]) for _ in queries]
    for start in range(0, len(corpus), corpus_rows):
        block = np.asarray(corpus[start : start + corpus_rows])
        rough_block = unit_vectors(block, np.float32).T
        for first in range(0, len(queries), query_rows):
            rough = rough_queries[first : first + query_rows] @ rough_block
            for number, query_scores in enumerate(rough, first):
                query = queries[number : number + 1]
                bests[number].add(query_scores[None], query, block, start)
    return (
        np.array([best.scores for best in bests], np.float32).reshape(len(queries), k),
        np.array([best.places for best in bests], np.int64).reshape(len(queries), k),
    )


def paraphrases(
    vectors: np.ndarray, limit: int, threshold: float = -1.0, block_rows: int = _PAIR_ROWS
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the pairs of rows of float32[n, width] with the highest cosines, each pair once, best
    first.

    Returns:
        The cosines, float32[p], of at least `threshold`, and the rows, int64[p, 2], the lower one
        first; p is at most `limit`.
    """
    best, n = _Best(limit, vectors.shape[1], threshold), len(vectors)
    for start in range(0, n, block_rows):
        block = np.asarray(vectors[start : start + block_rows])
        rough_block = unit_vectors(block, np.float32)
        for first in range(0, start + 1, block_rows):
            others = np.asarray(vectors[first : first + block_rows])
            rough = unit_vectors(others, np.float32) @ rough_block.T  # [others, block]
            if first == start:
                rough[np.tri(len(block), dtype=bool)] = -np.inf  # a row with itself or a lower one
            best.add(rough, others, block, first * n + start, n)
    return best.scores, np.stack(np.divmod(best.places, max(n, 1)), axis=1)


class _Best:
    """The `k` highest scores so far, of at least `lowest`, best first, and their places; equal
    ones by their place.
    """

    def __init__(self, k: int, width: int, lowest: float = -np.inf):
        self.scores, self.places = np.empty(0, np.float32), np.empty(0, np.int64)
        self._k, self._bar = k, lowest
        # Twice the largest error of a product in float32.
        self._slack = (2 * width + 16) * np.finfo(np.float32).eps

    def add(self, rough: np.ndarray, a: np.ndarray, b: np.ndarray, place: int, stride: int = 0):
        """Adds the cosines of rows of `a` and `b`, which `rough`, float32[len(a), len(b)], has in
        float32.

        The place of rows i and j is `place` + i `stride` + j. The best are computed again, each of
        its rows alone.
        """
        rough = rough.ravel()
        candidates = np.flatnonzero(rough >= self._bar - self._slack)
        if len(candidates) > self._k:
            values = rough[candidates]
            candidates = candidates[
                values >= np.partition(values, -self._k)[-self._k] - self._slack
            ]
        for start in range(0, len(candidates), _EXACT_AT_ONCE):
            i, j = np.divmod(candidates[start : start + _EXACT_AT_ONCE], len(b))
            exact = np.einsum("nd,nd->n", unit_vectors(a[i]), unit_vectors(b[j])).astype(np.float32)
            is_kept = exact >= self._bar
            scores = np.concatenate([self.scores, exact[is_kept]])
            places = np.concatenate([self.places, (place + i * stride + j)[is_kept]])
            order = np.lexsort((places, -scores))[: self._k]
            self.scores, self.places = scores[order], places[order]
            if len(order) == self._k:
                self._bar = max(self._bar, self.scores[-1])
