"""Rankings of retrieval sets are measured as `metrics.embeddings.retrieval` measures cosines."""

import numpy as np
import pytest

from official_bert.data.retrieval_sets import build_retrieval_set
from official_bert.data.text_tables import Example
from official_bert.io.errors import Diverged, InputError
from official_bert.metrics.embeddings import retrieval

UNLABELLED = [
    Example("1", "q0", ("a", "b"), ("c",)),
    Example("2", "q1", ("c",)),
    Example("3", "q0", ("d",)),
    Example("4", "e", ("f",)),
    Example("5", "q2", ("e", "q2")),
]
LABELLED = [
    Example("1", "q0", ("a",), label="1"),
    Example("2", "q0", ("b",), label="0"),
    Example("3", "q0", ("c",), label="true"),
    Example("4", "q1", ("c",), label="0"),  # has no right document
    Example("5", "q2", ("a",), label="1"),  # has no wrong one
    Example("6", "q3", ("a",), label="0"),
    Example("7", "q3", ("d",), label="1"),
]


def test_without_labels_the_documents_of_all_queries_are_ranked():
    retrieval_set = build_retrieval_set(UNLABELLED)
    assert retrieval_set.queries == ["q0", "q1", "e", "q2"]
    assert retrieval_set.documents == ["a", "b", "c", "d", "f", "e", "q2"]
    assert [rows.tolist() for rows in retrieval_set.relevant] == [[0, 1, 3], [2], [4], [5]]
    assert retrieval_set.candidates is None
    # A query that is a document, too, is not ranked for itself.
    assert retrieval_set.query_rows.tolist() == [-1, -1, 5, 6]


def test_with_labels_a_query_ranks_its_own_documents():
    retrieval_set = build_retrieval_set(LABELLED)
    assert retrieval_set.queries == ["q0", "q3"]
    assert retrieval_set.documents == ["a", "b", "c", "d"]
    assert [rows.tolist() for rows in retrieval_set.relevant] == [[0, 2], [3]]
    assert [rows.tolist() for rows in retrieval_set.candidates] == [[0, 1, 2], [0, 3]]


@pytest.mark.parametrize("examples", [UNLABELLED, LABELLED], ids=["all", "candidates"])
def test_metrics_are_those_of_cosines_of_the_same_order(examples):
    retrieval_set = build_retrieval_set(examples)
    draws = np.random.default_rng(4)
    queries = draws.normal(size=(len(retrieval_set.queries), 6))
    documents = draws.normal(size=(len(retrieval_set.documents), 6))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    expected = retrieval(
        queries,
        documents,
        retrieval_set.relevant,
        retrieval_set.candidates,
        retrieval_set.query_rows,
    )
    scores = queries @ documents.T
    assert retrieval_set.measure([scores[:1], scores[1:]]) == pytest.approx(expected)


def test_of_equal_scores_the_lower_row_ranks_first():
    retrieval_set = build_retrieval_set([Example("1", "q", ("b",), ("a",), "1")])
    assert retrieval_set.measure([np.zeros((1, 2))])["mrr_at_10"] == 1
    assert retrieval_set.measure([np.array([[1.0, 2.0]])])["mrr_at_10"] == 0.5


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(InputError, match="file: line 3: no query has a document to find"):
        build_retrieval_set([Example("file: line 3", "q", ("a",))])
    retrieval_set = build_retrieval_set(LABELLED)
    with pytest.raises(Diverged, match="not finite"):
        retrieval_set.measure([np.full((2, 4), np.nan)])
