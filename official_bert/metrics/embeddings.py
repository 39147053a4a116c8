"""Metrics of the vectors of texts: the similarity of texts by their cosine, and search with it.

Vectors are float32[n, width] of any norm; the cosine of a vector of zeros is 0. Names and
definitions are those of sentence-transformers' evaluators.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from official_bert.io.errors import InputError
from official_bert.metrics.classification import pearson, spearman
from official_bert.metrics.cosines import all_cosines, cosines, rank_rows

# The rows of a block of cosines.
QUERY_ROWS = 1 << 8
CORPUS_ROWS = 1 << 14
# The metrics at the top of a ranking read so many places; `map_at_100` reads the deeper ones.
_DEPTH = 100
_SHALLOW = 10
_RECALLS = (1, 5, 10, 100)
# The discounts of the gains at places 1, 2, ... (Järvelin and Kekäläinen, 2002).
_DISCOUNTS = 1 / np.log2(np.arange(_SHALLOW) + 2)


def sts(a: np.ndarray, b: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """Return the correlations of scores with the cosines of pairs.

    Args:
        a: the vectors of the first texts.
        b: the vectors of the second texts.
        scores: the scores of the pairs, float[n].

    Returns:
        `spearman` and `pearson`.
    """
    similarities = cosines(a, b)
    return spearman(scores, similarities) | pearson(scores, similarities)


def pair_classification(similarities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return how well similarities tell pairs with label 1 from those with label 0.

    `average_precision` is the mean precision at each pair with label 1; equal similarities count
    together. `best_accuracy` and `best_f1` are the highest values of all thresholds, if pairs from
    the threshold on are predicted as 1. `best_accuracy_threshold` and `best_f1_threshold` are
    midway between two neighbours; of several best ones each is the highest. F1 and precision are 0
    without a pair with label 1.

    Args:
        similarities: the similarities of the pairs, float[n].
        labels: their labels, int[n].

    Returns:
        The metrics by name.
    """
    scores = np.asarray(similarities, np.float64)
    order = np.argsort(-scores)
    num_pairs = len(order)
    scores = scores[order]
    is_positive = np.asarray(labels)[order] == 1

    # Only the last of equal similarities can be a threshold.
    is_last = np.append(scores[1:] != scores[:-1], True)
    last = np.flatnonzero(is_last)
    scores = scores[last]
    num_predicted = last + 1
    num_right = np.cumsum(is_positive)[last]
    num_positives = max(num_right[-1], 1)
    num_others = num_pairs - num_right[-1]
    precisions = num_right / num_predicted
    recalls = num_right / num_positives
    divisors = np.maximum(precisions + recalls, 1 / num_pairs)
    f1s = 2 * precisions * recalls / divisors

    below = np.append(scores[1:], scores[-1])
    middles = (scores + below) / 2
    # The last score has no middle, and rounding may move the middle of two close scores.
    thresholds = np.where(middles == below, scores, middles)

    # The first accuracy is that of a threshold above all scores.
    none_predicted = np.nextafter(scores[0], np.inf)
    num_hits = np.append(num_others, num_others + 2 * num_right - num_predicted)
    accuracies = num_hits / num_pairs
    accuracy_thresholds = np.append(none_predicted, thresholds)
    recall_steps = np.diff(recalls, prepend=0)
    return {
        "average_precision": float(np.sum(precisions * recall_steps)),
        "best_accuracy": float(accuracies.max()),
        "best_accuracy_threshold": float(accuracy_thresholds[accuracies.argmax()]),
        "best_f1": float(f1s.max()),
        "best_f1_threshold": float(thresholds[f1s.argmax()]),
    }


def triplets(anchor: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> dict[str, float]:
    """Return the share of negatives that are less similar to their anchor than its positive.

    Args:
        anchor: float32[n, width].
        positive: float32[n, width].
        negative: float32[n, width], or float32[n, k, width] for k negatives of each anchor.

    Returns:
        The share as `accuracy`.
    """
    with_positive = cosines(anchor, positive)
    if negative.ndim == 2:
        with_negative = cosines(anchor, negative)
    else:
        with_negative = cosines(anchor[:, None], negative)
        with_positive = with_positive[:, None]
    return {"accuracy": float(np.mean(with_positive > with_negative))}


def retrieval(
    queries: np.ndarray,
    corpus: np.ndarray,
    relevant: Sequence[Collection[int]],
    candidates: Sequence[Collection[int]] | None = None,
    query_rows: Sequence[int] | None = None,
) -> dict[str, float]:
    """Return how high the relevant rows of a corpus rank by their cosine to queries.

    Cosines are compared as float32; of equal ones the lower row ranks first. A query is left out if
    it has no relevant row, or if it ranks only relevant rows, because every ranking of them is
    right. The row of the query itself is never ranked.

    With `candidates` only these rows are ranked, as in the selection of answers, and `map` is over
    all of them. A relevant row that is no candidate counts as missed.

    Args:
        queries: float32[q, width].
        corpus: float32[n, width], also a np.memmap, which is read in blocks.
        relevant: the rows of `corpus` that answer each query.
        candidates: the rows of `corpus` to rank for each query; None for all.
        query_rows: the row of `corpus` that is each query itself, -1 for none; None if no query is
            in the corpus.

    Returns:
        Means over the queries: `ndcg_at_10`, `mrr_at_10`, `map_at_100` (`map` with candidates),
        `recall_at_1`, `recall_at_5`, `recall_at_10`, `recall_at_100` and `accuracy_at_1`.

    Raises:
        InputError: all queries are left out.
    """
    self_rows = np.full(len(relevant), -1) if query_rows is None else np.asarray(query_rows)
    relevant_rows = _remove_rows(relevant, self_rows)
    if candidates is None:
        num_ranked = len(corpus) - (self_rows >= 0)
        numbers = [
            number
            for number, rows in enumerate(relevant_rows)
            if 0 < len(rows) < num_ranked[number]
        ]
        rankings = _rank_in_corpus(
            queries=queries[numbers],
            corpus=corpus,
            relevant_rows=[relevant_rows[number] for number in numbers],
            query_rows=self_rows[numbers],
        )
    else:
        ranked_rows = _remove_rows(candidates, self_rows)
        numbers = [
            number
            for number, rows in enumerate(relevant_rows)
            if len(rows) and not np.array_equal(rows, ranked_rows[number])
        ]
        rankings = (
            _rank_candidates(
                query=queries[number],
                corpus=corpus,
                relevant_rows=relevant_rows[number],
                ranked_rows=ranked_rows[number],
            )
            for number in numbers
        )
    if not numbers:
        raise InputError(
            "no query has a relevant text to be found among others; give it one, or leave out the "
            "metrics"
        )
    query_scores = [
        score_places(places, num_relevant=len(relevant_rows[number]))
        for number, places in zip(numbers, rankings, strict=True)
    ]
    unused_name = "map" if candidates is None else "map_at_100"
    means = {}
    for name in query_scores[0]:
        if name != unused_name:
            means[name] = float(np.mean([scores[name] for scores in query_scores]))
    return means


def score_places(places: np.ndarray, num_relevant: int) -> dict[str, float]:
    """Return the scores of one query.

    Args:
        places: the places of its relevant texts in a ranking, from 1, int[places].
        num_relevant: the number of its relevant texts, of which some may have no place.

    Returns:
        `ndcg_at_10`, `mrr_at_10`, `map`, `map_at_100`, `recall_at_1`, `recall_at_5`,
        `recall_at_10`, `recall_at_100` and `accuracy_at_1`.

    Example:
        ```python
        score_places(np.array([2]), num_relevant=1)["mrr_at_10"]  # 0.5
        ```
    """
    places = np.sort(places)
    precisions = np.arange(1, len(places) + 1) / places
    shallow_places = places[places <= _SHALLOW]
    gain = _DISCOUNTS[shallow_places - 1].sum()
    largest_gain = _DISCOUNTS[:num_relevant].sum()
    scores = {
        "ndcg_at_10": gain / largest_gain,
        "mrr_at_10": 1 / shallow_places[0] if len(shallow_places) else 0.0,
        "map": precisions.sum() / num_relevant,
        "map_at_100": precisions[places <= _DEPTH].sum() / min(_DEPTH, num_relevant),
    }
    for k in _RECALLS:
        scores[f"recall_at_{k}"] = np.sum(places <= k) / num_relevant
    scores["accuracy_at_1"] = float(1 in shallow_places)
    return scores


def _rank_candidates(
    query: np.ndarray,
    corpus: np.ndarray,
    relevant_rows: np.ndarray,
    ranked_rows: np.ndarray,
) -> np.ndarray:
    """Returns the places of those relevant rows that are ranked."""
    _, ranking = rank_rows(query, corpus, ranked_rows)
    is_relevant = np.isin(ranking, relevant_rows)
    return np.flatnonzero(is_relevant) + 1


def _rank_in_corpus(
    queries: np.ndarray,
    corpus: np.ndarray,
    relevant_rows: Sequence[np.ndarray],
    query_rows: np.ndarray,
) -> Iterator[np.ndarray]:
    """Yields the places of each query's best `_DEPTH` relevant rows.

    A place is one more than the number of rows before it, without the query's own row. Counting
    them needs no sorting.
    """
    for first in range(0, len(queries), QUERY_ROWS):
        block = queries[first : first + QUERY_ROWS]
        best_rows = [
            rank_rows(query=query, corpus=corpus, rows=rows, most=_DEPTH)
            for query, rows in zip(block, relevant_rows[first:], strict=False)
        ]
        block_places = [np.ones(len(rows), np.int64) for _, rows in best_rows]
        for start in range(0, len(corpus), CORPUS_ROWS):
            block_scores = all_cosines(block, corpus[start : start + CORPUS_ROWS])
            others = np.arange(start, start + block_scores.shape[1])
            for number, places in enumerate(block_places):
                is_query = others == query_rows[first + number]
                scores = np.where(is_query, -np.inf, block_scores[number])
                row_scores, rows = best_rows[number]
                places += _count_before(
                    row_scores=row_scores,
                    rows=rows,
                    scores=scores,
                    others=others,
                )
        yield from block_places


def _count_before(
    row_scores: np.ndarray,
    rows: np.ndarray,
    scores: np.ndarray,
    others: np.ndarray,
) -> np.ndarray:
    """Returns for each of some rows the number of other rows that rank before it.

    Args:
        row_scores: the scores of the rows, float32[rows].
        rows: the rows, int[rows].
        scores: the scores of the others, float32[others].
        others: the other rows, int[others].
    """
    row_scores = row_scores[:, None]
    is_before = np.where(others < rows[:, None], scores >= row_scores, scores > row_scores)
    return is_before.sum(axis=1)


def _remove_rows(all_rows: Sequence[Iterable[int]], query_rows: np.ndarray) -> list[np.ndarray]:
    """Returns the different rows of each query, sorted, without its own one."""
    results = []
    for rows, query_row in zip(all_rows, query_rows, strict=True):
        different_rows = np.unique(np.fromiter(rows, np.int64))
        results.append(different_rows[different_rows != query_row])
    return results
