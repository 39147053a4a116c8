"""The rows of a training: the texts of each example, as its loss needs them."""

import types

import numpy as np

from official_bert.data.text_tables import Example
from official_bert.extensions.embeddings.examples import build_example_rows


def rows_of(*examples: Example, num_texts=(2, 1000), repeats=1) -> list[list[str]]:
    rows, found = build_example_rows(
        examples, types.SimpleNamespace(num_texts=num_texts, repeats=repeats), "a_loss"
    )
    assert found.dtype == np.int32
    assert len(set(rows.texts)) == len(rows.texts)
    return [[rows.texts[text] for text in row] for row in found]


def test_each_positive_is_an_example_and_all_have_as_many_negatives():
    several = Example("", "a", ("p", "q"), ("m", "n"))
    one, none = Example("", "b", ("q",), ("o",)), Example("", "c", ("p",))
    assert rows_of(several, one, none) == [["a", "p", "m"], ["a", "q", "m"], ["b", "q", "o"]]
    assert rows_of(several) == [["a", "p", "m", "n"], ["a", "q", "m", "n"]]
    assert rows_of(several, none, num_texts=(2, 2)) == [["a", "p"], ["a", "q"], ["c", "p"]]
    assert rows_of(one, none, num_texts=(1, 1), repeats=2) == [[text] * 2 for text in "bqocp"]
