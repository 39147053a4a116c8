"""Rows of tables as queries with documents, and the examples that they become."""

import pytest

from official_bert.data.text_tables import Example
from official_bert.extensions.reranking.rankings import (
    Document,
    Ranking,
    merge_queries,
    read_ranking,
    sort_documents,
    split,
)
from official_bert.io.errors import InputError


def row(positives=(), negatives=(), label="") -> Example:
    return Example("file: line 7", "q", tuple(positives), tuple(negatives), label)


def ranking(labels, query="q", documents=None) -> Ranking:
    documents = documents or [f"{query}{number}" for number in range(len(labels))]
    return Ranking("", query, tuple(map(Document, documents, labels)))


def texts(ranking: Ranking) -> str:
    return " ".join(document.text for document in ranking.documents)


@pytest.mark.parametrize(
    ("example", "documents", "labels"),
    [
        (row("ab", "c"), "abc", (1, 1, 0)),
        (row("a"), "a", (1,)),
        (row(negatives="ab"), "ab", (0, 0)),
        (row("a", label="0"), "a", (0,)),
        (row("ab", label="0.5"), "ab", (0.5, 0.5)),
        (row("a", label="true"), "a", (1,)),
        (row("a", "bc", label="3 2.5 -1"), "abc", (3, 2.5, -1)),
        # Margins: how much better the positive is.
        (row("a", "b", label="4"), "ab", (0, -4)),
        (row("a", "bc", label="4 5"), "abc", (0, -4, -5)),
    ],
)
def test_a_row_has_documents_and_their_labels(example, documents, labels):
    read = read_ranking(example)
    assert read.query == "q"
    assert texts(read).replace(" ", "") == documents
    assert read.labels == list(labels)


@pytest.mark.parametrize(
    ("example", "sentence"),
    [
        (row(), "line 7: has a query and no document; .* --positive_column="),
        (row("ab", "c", label="1 2"), "line 7: the label has 2 numbers, and the row 3 texts"),
        (row("a", "bc", label="1"), "the label has 1 numbers, and the row 3 texts"),
        (row("a", label="good"), "line 7: the label 'good' is no number"),
        (row("a", "b", label="1 x"), "line 7: the label 'x' is no number"),
    ],
)
def test_rows_without_documents_or_with_other_labels_are_refused(example, sentence):
    with pytest.raises(InputError, match=sentence):
        read_ranking(example)


def test_rows_of_a_query_become_one_ranking():
    rows = [ranking([0, 1], "a"), ranking([1], "b"), ranking([2, 1], "a", ["a0", "x"])]
    merged = merge_queries(rows)
    assert [one.query for one in merged] == ["a", "b"]
    assert texts(merged[0]) == "a0 a1 x"
    assert merged[0].labels == [2, 1, 1]


def test_documents_are_sorted_by_their_labels():
    assert sort_documents(ranking([0, 2, 2, 1])).documents[0] == ("q1", 2)
    assert texts(sort_documents(ranking([0, 2, 2, 1]))) == "q1 q2 q3 q0"


def test_a_short_ranking_is_one_part():
    assert list(split(ranking([0, 1, 0]), 3)) == [ranking([0, 1, 0])]


def test_each_part_has_the_best_documents_and_other_ones_of_the_rest():
    parts = list(split(ranking([0, 0, 1, 0, 0, 0, 0]), 3))
    assert list(map(texts, parts)) == ["q2 q0 q1", "q2 q3 q4", "q2 q5 q6"]
    assert all(part.labels == [1, 0, 0] for part in parts)


def test_many_good_documents_take_turns():
    parts = list(split(ranking([1, 1, 1, 1, 1, 0]), 3))
    assert list(map(texts, parts)) == ["q0 q1 q5", "q2 q3 q5", "q4 q0 q5"]


def test_equal_labels_are_split_in_order():
    parts = list(split(ranking([0] * 5), 2))
    assert list(map(texts, parts)) == ["q0 q1", "q2 q3", "q4"]
