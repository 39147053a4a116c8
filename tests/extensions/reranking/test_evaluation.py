"""Metrics of rankings, computed by hand."""

import math

import numpy as np
import pytest

from official_bert.extensions.reranking import evaluation
from official_bert.extensions.reranking.rankings import Document, Ranking
from official_bert.io.errors import Diverged, InputError

QUERIES = np.int32([4, 4, 4, 0, 0, 0, 0])
LABELS = np.float32([0, 1, 0, 1, 0, 0, 2])
SCORES = np.float32([0.9, 0.5, 0.1, 0.2, 0.3, 0.2, 0.9])


def test_right_documents_rank_by_their_scores():
    """The first query has its document at place 2, the second at 1 and, before an equal one, 3."""
    metrics = evaluation.measure(QUERIES, LABELS, SCORES)
    second = (1 + 1 / math.log2(4)) / (1 + 1 / math.log2(3))
    assert metrics == {
        "eval_ndcg_at_10": pytest.approx((1 / math.log2(3) + second) / 2),
        "eval_mrr_at_10": pytest.approx((1 / 2 + 1) / 2),
        "eval_map": pytest.approx((1 / 2 + (1 + 2 / 3) / 2) / 2),
    }


def test_scores_that_are_not_finite_end_the_run():
    with pytest.raises(Diverged, match="not finite"):
        evaluation.measure(QUERIES, LABELS, np.where(SCORES > 0.8, np.nan, SCORES))


def test_queries_with_one_kind_of_documents_are_left_out():
    labels = {"line 2": (1, 0.5), "line 4": (0, -1), "line 6": (0, 0.1)}
    rankings = []
    for where, (first, second) in labels.items():
        documents = (Document("x", first), Document("y", second))
        rankings.append(Ranking(where, where, documents))
    assert evaluation.select_rankings(rankings) == rankings[2:]
    with pytest.raises(InputError, match=r"line 2: no query has .* mine_hard_negatives"):
        evaluation.select_rankings(rankings[:2])
