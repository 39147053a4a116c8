"""Tests of the rows of a training: the texts of each example, as its loss needs them."""

import types

import numpy as np

from official_bert.data.text_examples import build_example_rows
from official_bert.data.text_tables import Example

TWO_NEGATIVES = Example("", "a", ("p", "q"), ("m", "n"))
ONE_NEGATIVE = Example("", "b", ("q",), ("o",))
NO_NEGATIVE = Example("", "c", ("p",))


def build_rows(*examples: Example, num_texts=(2, 1000), repeats=1) -> list[list[str]]:
    loss = types.SimpleNamespace(num_texts=num_texts, repeats=repeats)
    rows, text_ids = build_example_rows(examples, loss, "a_loss")
    assert text_ids.dtype == np.int32
    assert len(set(rows.texts)) == len(rows.texts)
    return [[rows.texts[text_id] for text_id in row] for row in text_ids]


def test_each_positive_is_an_example_and_all_have_as_many_negatives():
    assert build_rows(TWO_NEGATIVES) == [
        ["a", "p", "m", "n"],
        ["a", "q", "m", "n"],
    ]
    # An example without negatives has no row where another one has negatives.
    assert build_rows(TWO_NEGATIVES, ONE_NEGATIVE, NO_NEGATIVE) == [
        ["a", "p", "m"],
        ["a", "q", "m"],
        ["b", "q", "o"],
    ]


def test_losses_of_pairs_drop_the_negatives():
    assert build_rows(TWO_NEGATIVES, NO_NEGATIVE, num_texts=(2, 2)) == [
        ["a", "p"],
        ["a", "q"],
        ["c", "p"],
    ]


def test_losses_of_repeated_texts_have_a_row_for_each_text():
    rows = build_rows(ONE_NEGATIVE, NO_NEGATIVE, num_texts=(1, 1), repeats=2)
    assert rows == [
        ["b", "b"],
        ["q", "q"],
        ["o", "o"],
        ["c", "c"],
        ["p", "p"],
    ]
