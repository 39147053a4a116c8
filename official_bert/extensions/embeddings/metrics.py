"""Metrics of the vectors of texts: how like they are by their cosine, and what a search with it
finds.

Vectors are float32[n, width] of any norm; the cosine of a vector of zeros is 0. Names and
definitions are those of sentence-transformers' evaluators.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from official_bert.io.errors import InputError
from official_bert.metrics.classification import pearson, spearman
from official_bert.metrics.cosines import all_cosines, cosines

_QUERY_ROWS, _CORPUS_ROWS = 1 << 8, 1 << 14  # of the cosines that are computed at a time
_DEPTH, _SHALLOW = 100, 10
_RECALLS = (1, 5, 10, 100)
# Of the gains at places 1, 2, ... (Järvelin and Kekäläinen, 2002).
_DISCOUNTS = 1 / np.log2(np.arange(_SHALLOW) + 2)


def sts(a: np.ndarray, b: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """Returns the correlations of scores, float[n], with the cosines of pairs, as `spearman` and
    `pearson`.
    """
    similarities = cosines(a, b)
    return spearman(scores, similarities) | pearson(scores, similarities)


def pair_classification(similarities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Returns how well similarities, float[n], tell pairs with label 1 from those with label 0,
    int[n].

    `average_precision` is the mean precision at each pair with label 1, where equal similarities
    count together. `best_accuracy` and `best_f1` are the highest that a threshold gives if pairs
    from it on are predicted as 1. The thresholds, `best_accuracy_threshold` and
    `best_f1_threshold`, lie midway between two neighbours; of several that are best, each is the
    highest. F1 and precision are 0 without a pair with label 1.
    """
    scores = np.asarray(similarities, np.float64)
    order = np.argsort(-scores)
    scores, is_positive = scores[order], np.asarray(labels)[order] == 1
    # Of each run of equal similarities.
    last = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))
    scores, num_predicted, num_right = scores[last], last + 1, np.cumsum(is_positive)[last]
    num_positives, num_others = max(num_right[-1], 1), len(order) - num_right[-1]
    precisions, recalls = num_right / num_predicted, num_right / num_positives
    f1s = 2 * precisions * recalls / np.maximum(precisions + recalls, 1 / len(order))

    below = np.append(scores[1:], scores[-1])
    middles = (scores + below) / 2
    # For the last, and if rounding moves the middle.
    thresholds = np.where(middles == below, scores, middles)
    none_predicted = np.nextafter(scores[0], np.inf)
    accuracies = np.append(num_others, num_others + 2 * num_right - num_predicted) / len(order)
    return {
        "average_precision": float(np.sum(precisions * np.diff(recalls, prepend=0))),
        "best_accuracy": float(accuracies.max()),
        "best_accuracy_threshold": float(
            np.append(none_predicted, thresholds)[accuracies.argmax()]
        ),
        "best_f1": float(f1s.max()),
        "best_f1_threshold": float(thresholds[f1s.argmax()]),
    }


def triplets(anchor: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> dict[str, float]:
    """Returns the share of negatives that are less like their anchor than its positive is, as
    `accuracy`.

    Anchors and positives are float32[n, width], negatives float32[n, width] or, k for each anchor,
    [n, k, width].
    """
    with_negative = cosines(anchor if negative.ndim == 2 else anchor[:, None], negative)
    with_positive = cosines(anchor, positive).reshape(-1, *[1] * (negative.ndim - 2))
    return {"accuracy": float(np.mean(with_positive > with_negative))}


def retrieval(
    queries: np.ndarray,
    corpus: np.ndarray,
    relevant: Sequence[Collection[int]],
    candidates: Sequence[Collection[int]] | None = None,
    query_rows: Sequence[int] | None = None,
) -> dict[str, float]:
    """Returns how high the relevant rows of a corpus rank by their cosine to queries, as means over
    the queries.

    The scores are `ndcg_at_10`, `mrr_at_10`, `map_at_100`, `recall_at_1`, `..._5`, `..._10`,
    `..._100` and `accuracy_at_1`. Cosines are compared as float32; of equal ones the lower row
    ranks first. A query is left out if it has no relevant row, or if it ranks only relevant rows,
    because every ranking of them is right.

    With `candidates` only these rows are ranked, as in the selection of answers: `map` is over all
    of them, in place of `map_at_100`. A relevant row that is no candidate is not found. The row of
    the query itself is never ranked.

    Args:
        queries: float32[q, width].
        corpus: float32[n, width], also a np.memmap, of which a block at a time is computed with.
        relevant: the rows of `corpus` that answer each query.
        candidates: the rows of `corpus` that are ranked for each query; by default all.
        query_rows: the row of `corpus` that is each query itself, -1 for none; by default no query
            is in the corpus.
    """
    query_rows = np.full(len(relevant), -1) if query_rows is None else np.asarray(query_rows)
    relevant_rows = [_remove_row(rows, one) for rows, one in zip(relevant, query_rows, strict=True)]
    if candidates is None:
        num_ranked = len(corpus) - (query_rows >= 0)
        kept = [
            number
            for number, rows in enumerate(relevant_rows)
            if 0 < len(rows) < num_ranked[number]
        ]
    else:
        ranked = [_remove_row(rows, one) for rows, one in zip(candidates, query_rows, strict=True)]
        kept = [
            number
            for number, rows in enumerate(relevant_rows)
            if len(rows) and not np.array_equal(rows, ranked[number])
        ]
    if not kept:
        raise InputError(
            "no query has a relevant text to be found among others; give it one, or leave out the "
            "metrics"
        )
    if candidates is None:
        places = _rank_in_corpus(
            queries[kept], corpus, [relevant_rows[number] for number in kept], query_rows[kept]
        )
    else:
        places = (
            _rank_candidates(queries[number], corpus, relevant_rows[number], ranked[number])
            for number in kept
        )
    query_scores = [
        _score_query(query_places, len(relevant_rows[number]))
        for number, query_places in zip(kept, places, strict=True)
    ]
    scores = {
        name: float(np.mean([values[name] for values in query_scores])) for name in query_scores[0]
    }
    del scores["map" if candidates is None else "map_at_100"]
    return scores


def _score_query(places: np.ndarray, num_relevant: int) -> dict[str, float]:
    """Returns the scores of one query, of whose relevant rows some have places in a ranking,
    from 1: int[places].
    """
    places = np.sort(places)
    precisions, shallow = np.arange(1, len(places) + 1) / places, places[places <= _SHALLOW]
    return {
        "ndcg_at_10": _DISCOUNTS[shallow - 1].sum() / _DISCOUNTS[:num_relevant].sum(),
        "mrr_at_10": 1 / shallow[0] if len(shallow) else 0.0,
        "map": precisions.sum() / num_relevant,
        "map_at_100": precisions[places <= _DEPTH].sum() / min(_DEPTH, num_relevant),
        **{f"recall_at_{k}": np.sum(places <= k) / num_relevant for k in _RECALLS},
        "accuracy_at_1": float(1 in shallow),
    }


def _rank_candidates(
    query: np.ndarray, corpus: np.ndarray, relevant_rows: np.ndarray, ranked: np.ndarray
) -> np.ndarray:
    """Returns the places of those relevant_rows rows that are ranked."""
    order = np.argsort(-all_cosines(query[None], corpus[ranked])[0], kind="stable")
    return np.flatnonzero(np.isin(ranked[order], relevant_rows)) + 1


def _rank_in_corpus(
    queries: np.ndarray,
    corpus: np.ndarray,
    relevant_rows: Sequence[np.ndarray],
    query_rows: np.ndarray,
) -> Iterator[np.ndarray]:
    """Yields the places of each query's relevant_rows rows, without those behind _DEPTH others of
    them.

    A place is one more than the number of rows before it, but the query's own. To count these needs
    no sorting.
    """
    for first in range(0, len(queries), _QUERY_ROWS):
        block = queries[first : first + _QUERY_ROWS]
        marks = [
            _best_rows(query, corpus, rows)
            for query, rows in zip(block, relevant_rows[first:], strict=False)
        ]
        places = [np.ones(len(rows), np.int64) for _, rows in marks]
        for start in range(0, len(corpus), _CORPUS_ROWS):
            scores = all_cosines(block, corpus[start : start + _CORPUS_ROWS])
            others = np.arange(start, start + scores.shape[1])
            for place, query_scores, (bars, rows), query_row in zip(
                places, scores, marks, query_rows[first:], strict=False
            ):
                bars, rows = bars[:, None], rows[:, None]
                query_scores = np.where(others == query_row, -np.inf, query_scores)
                is_before = np.where(others < rows, query_scores >= bars, query_scores > bars)
                place += is_before.sum(axis=1)  # [relevant_rows, corpus] -> [relevant_rows]
        yield from places


def _best_rows(
    query: np.ndarray, corpus: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the scores of the best _DEPTH of some rows, and these rows."""
    scores = all_cosines(query[None], corpus[rows])[0]
    order = np.argsort(-scores, kind="stable")[:_DEPTH]
    return scores[order], rows[order]


def _remove_row(rows: Iterable[int], query_row: int) -> np.ndarray:
    """Returns different rows, sorted, without one."""
    different = np.unique(np.fromiter(rows, np.int64))
    return different[different != query_row]
