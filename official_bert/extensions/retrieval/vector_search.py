"""Exact search by the cosine of vectors, and pairs of similar vectors.

Input: float32[n, width], an array or a np.memmap, which is read in blocks. Output: scores and rows
that do not depend on the blocks. float32 finds the candidates, and float64 computes their scores.
Of equal scores the lower row comes first.
"""

from __future__ import annotations

import numpy as np

from official_bert.extensions.retrieval.rows import FEW_QUERIES, WINDOW_ROWS, FloatRows, Rows
from official_bert.metrics.cosines import unit_vectors

# The rows of a block of cosines.
_CORPUS_ROWS = 1 << 14
_QUERY_ROWS = 1 << 8
_PAIR_ROWS = 1 << 11
_EXACT_ROWS = 1 << 12  # The scores that are computed in float64 at a time.


def search(
    queries: np.ndarray,
    corpus: np.ndarray | Rows,
    k: int,
    corpus_rows: int | None = None,
    query_rows: int = _QUERY_ROWS,
) -> tuple[np.ndarray, np.ndarray]:
    """Find the rows of a corpus with the highest cosines to each query, best first.

    Args:
        queries: float32[q, width].
        corpus: float32[n, width], also a np.memmap, or the rows of smaller vectors.
        k: the number of rows for a query; n if it is larger.
        corpus_rows: the rows of the corpus in a block, which change no result; None chooses them.
        query_rows: the queries in a block, which change no result.

    Returns:
        The cosines, float32[q, k], and the rows, int64[q, k].
    """
    rows = corpus if isinstance(corpus, Rows) else FloatRows(corpus)
    k = min(k, len(rows))
    num_queries = len(queries)
    if corpus_rows is None:
        corpus_rows = WINDOW_ROWS if num_queries <= FEW_QUERIES else _CORPUS_ROWS
    rough_queries = unit_vectors(queries, np.float32)
    rankings = [_Ranking(k, rows.width, error_scale=rows.error_scale) for _ in queries]
    for start in range(0, len(rows), corpus_rows):
        end = start + corpus_rows
        block = rows.block(start, end)
        norms = rows.block_norms(block, start)
        for first in range(0, num_queries, query_rows):
            query_block = rough_queries[first : first + query_rows]
            rough_cosines = block.products(query_block)
            rough_cosines /= norms
            for row, query_cosines in enumerate(rough_cosines, first):
                rankings[row].add(
                    query_cosines[None],
                    queries[row : row + 1],
                    block,
                    place=start,
                )
    scores = np.array(
        [ranking.scores for ranking in rankings],
        np.float32,
    )
    places = np.array(
        [ranking.places for ranking in rankings],
        np.int64,
    )
    shape = (num_queries, k)
    return scores.reshape(shape), places.reshape(shape)


def paraphrases(
    vectors: np.ndarray,
    limit: int,
    threshold: float = -1.0,
    block_rows: int = _PAIR_ROWS,
) -> tuple[np.ndarray, np.ndarray]:
    """Find the pairs of rows with the highest cosines, each pair once, best first.

    Args:
        vectors: float32[n, width], also a np.memmap.
        limit: the largest number of pairs.
        threshold: the lowest cosine of a pair.
        block_rows: the rows of a block, which change no result.

    Returns:
        The cosines, float32[p], and the rows, int64[p, 2], the lower one first; p is at most
        `limit`.
    """
    num_rows = len(vectors)
    ranking = _Ranking(limit, vectors.shape[1], threshold)
    for start in range(0, num_rows, block_rows):
        end = start + block_rows
        block = np.asarray(vectors[start:end])
        rough_block = unit_vectors(block, np.float32)
        for first in range(0, start + 1, block_rows):
            last = first + block_rows
            others = np.asarray(vectors[first:last])
            rough_others = unit_vectors(others, np.float32)
            rough_cosines = rough_others @ rough_block.T  # [others, block]
            if first == start:
                # Leave out each row with itself, and with the rows before it.
                is_repeated = np.tri(len(block), dtype=bool)
                rough_cosines[is_repeated] = -np.inf
            ranking.add(
                rough_cosines,
                others,
                block,
                place=first * num_rows + start,
                stride=num_rows,
            )
    first_rows, second_rows = np.divmod(ranking.places, max(num_rows, 1))
    pairs = np.stack([first_rows, second_rows], axis=1)
    return ranking.scores, pairs


class _Ranking:
    """The highest scores so far, best first, and their places; equal scores by their place."""

    def __init__(self, k: int, width: int, lowest: float = -np.inf, error_scale: int = 1):
        """Creates an empty ranking.

        Args:
            k: the largest number of scores.
            width: the components of the vectors.
            lowest: the lowest score that may enter.
            error_scale: the largest error of a rough cosine, relative to that of float32 vectors.
        """
        self.scores = np.empty(0, np.float32)
        self.places = np.empty(0, np.int64)
        self._k = k
        self._bar = lowest
        # Twice the largest error of a product in float32.
        epsilon = np.finfo(np.float32).eps
        self._slack = error_scale * (2 * width + 16) * epsilon

    def add(
        self,
        rough_cosines: np.ndarray,
        a: np.ndarray,
        b: np.ndarray | Rows,
        place: int,
        stride: int = 0,
    ) -> None:
        """Adds the cosines of the rows of `a` and `b`.

        Those that may be among the best are computed again in float64, each pair of rows alone.

        Args:
            rough_cosines: their cosines as float32[len(a), len(b)].
            a: float32[len(a), width].
            b: float32[len(b), width].
            place: the place of the two first rows.
            stride: the places from a row of `a` to the next; a row of `b` is one place on.
        """
        candidates = self._find_candidates(rough_cosines.ravel())
        for start in range(0, len(candidates), _EXACT_ROWS):
            indices = candidates[start : start + _EXACT_ROWS]
            a_rows, b_rows = np.divmod(indices, len(b))
            a_vectors = unit_vectors(a[a_rows])
            b_vectors = unit_vectors(b[b_rows])
            cosines = np.einsum("nd,nd->n", a_vectors, b_vectors)
            places = place + a_rows * stride + b_rows
            self._merge(cosines.astype(np.float32), places)

    def _find_candidates(self, rough_cosines: np.ndarray) -> np.ndarray:
        """Returns the indices of the float32 cosines whose exact values may be among the best."""
        lowest = self._bar - self._slack
        candidates = np.flatnonzero(rough_cosines >= lowest)
        if len(candidates) <= self._k:
            return candidates
        values = rough_cosines[candidates]
        # The k highest values come last, the lowest of them first.
        partition = np.partition(values, -self._k)
        kth_value = partition[-self._k]
        return candidates[values >= kth_value - self._slack]

    def _merge(self, scores: np.ndarray, places: np.ndarray):
        is_high = scores >= self._bar
        all_scores = np.concatenate([self.scores, scores[is_high]])
        all_places = np.concatenate([self.places, places[is_high]])
        order = np.lexsort((all_places, -all_scores))
        order = order[: self._k]
        self.scores = all_scores[order]
        self.places = all_places[order]
        if len(order) == self._k:
            self._bar = max(self._bar, self.scores[-1])
