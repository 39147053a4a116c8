"""The evaluation of a reranker: how high the right documents of each query rank by their scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from absl import logging

from official_bert.extensions.reranking.options import METRICS
from official_bert.extensions.reranking.rankings import Ranking
from official_bert.io.errors import Diverged, InputError
from official_bert.metrics.embeddings import score_places


def select_rankings(rankings: Sequence[Ranking]) -> list[Ranking]:
    """Return the queries that have a right and a wrong document.

    A document is right if its label is above 0. Every order of documents that are all right or all
    wrong is the same.

    Args:
        rankings: the queries, each once.

    Raises:
        InputError: no query is left.
    """
    selected = []
    for ranking in rankings:
        is_right = [label > 0 for label in ranking.labels]
        if any(is_right) and not all(is_right):
            selected.append(ranking)
    if not selected:
        raise InputError(
            f"{rankings[0].where}: no query has a document with a label above 0 and another one, "
            "so no order is better than another; check --label_column, or give negatives, such as "
            "those of official-bert mine_hard_negatives"
        )
    if len(selected) < len(rankings):
        logging.info(
            "%d queries without a right or a wrong document are left out",
            len(rankings) - len(selected),
        )
    return selected


def measure(queries: np.ndarray, labels: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """Return nDCG and MRR of the first ten documents, and MAP, as means over the queries.

    Of documents with equal scores, the earlier one ranks first.

    Args:
        queries: the query of each pair, int[n]; equal ones follow one another.
        labels: the label of each pair, float[n]; above 0 the document is right.
        scores: its score, float[n].

    Returns:
        The metrics of `METRICS` with the prefix `eval_`.

    Raises:
        Diverged: a score is not finite.
    """
    if not np.isfinite(scores).all():
        raise Diverged("the model gives scores that are not finite")
    ends = np.flatnonzero(np.diff(queries)) + 1
    query_scores = []
    for rows in np.split(np.arange(len(queries)), ends):
        order = np.argsort(-scores[rows], kind="stable")
        is_right = labels[rows][order] > 0
        places = np.flatnonzero(is_right) + 1
        query_scores.append(score_places(places, num_relevant=len(places)))
    return {f"eval_{name}": float(np.mean([one[name] for one in query_scores])) for name in METRICS}
