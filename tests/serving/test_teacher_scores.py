"""The margins of margin_mse: from the labels of rows, and from a reranker."""

import functools

import numpy as np
import pytest

from official_bert import Predictor
from official_bert.data.text_examples import read_margins
from official_bert.data.text_tables import Example
from official_bert.io.errors import InputError
from official_bert.serving.predictor import compute_teacher_scores
from tests.serving import exported

ROWS = [
    Example("line 2", "a", ("b",), ("c", "d"), "5 2 1.5"),
    Example("line 3", "a", ("b", "x"), ("c", "d"), "5 4 2 1.5"),
    Example("line 4", "a", ("b",), ("c",), "9"),  # has too few negatives
    Example("line 5", "a", ("b",), ("c", "d"), "-1 3"),
]


def test_margins_are_differences_of_labels():
    expected = [[3, 3.5], [3, 3.5], [2, 2.5], [-1, 3]]
    np.testing.assert_allclose(read_margins(ROWS, 4), expected)


def test_rows_with_other_labels_are_refused():
    rows = [Example("line 2", "a", ("b",), ("c", "d"), "5")]
    with pytest.raises(InputError, match="line 2: the label has 1 numbers, and the row 3 texts"):
        read_margins(rows, 4)
    with pytest.raises(InputError, match="line 2: has no label"):
        read_margins([rows[0]._replace(label="")], 4)


def test_margins_are_those_of_a_model_of_pairs(tmp_path_factory):
    path = str(exported.shared_export(tmp_path_factory, "sts-b").path)
    rows = [
        Example("", "the cat sat", ("rain", "a train left"), ("the cat", "noon")),
        Example("", "a sunny day", ("the mat",), ("the park", "a child")),
    ]
    predictor = Predictor(path)

    def score(row, text) -> float:
        return predictor(row.anchor, text)["score"]

    expected = [
        [score(row, positive) - score(row, negative) for negative in row.negatives]
        for row in rows
        for positive in row.positives
    ]
    computed = read_margins(rows, 4, functools.partial(compute_teacher_scores, path))
    np.testing.assert_allclose(computed, expected, atol=1e-5)
    assert np.ptp(computed) > 1e-2
    other = str(exported.shared_export(tmp_path_factory, "ner").path)
    with pytest.raises(InputError, match=r"ner gives pairs of texts no score"):
        compute_teacher_scores(other, [("a", "b")])
