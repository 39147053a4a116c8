"""The expected texts come from Python's round and json."""

import json

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from official_bert.commands.extract_features import json_vectors


def plain(vectors) -> list[str]:
    return [json.dumps([round(float(x), 6) for x in vector]) for vector in vectors]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "[0.0]"),
        (-1e-9, "[-0.0]"),
        (1.0, "[1.0]"),
        (-0.25, "[-0.25]"),
        (0.0001, "[0.0001]"),
        (1e-6, "[1e-06]"),
        (-99.5, "[-99.5]"),
        (999.125, "[999.125]"),
        (1000.5, "[1000.5]"),
        (2.0**-7, "[0.007812]"),  # 0.0078125 lies half-way: to the even digit
        (3 * 2.0**-7, "[0.023438]"),
    ],
)
def test_numbers_by_hand(number, text):
    assert list(json_vectors(np.float32([[number]]))) == [text]


@given(arrays.arrays(np.float32, st.tuples(st.integers(0, 5), st.integers(1, 6)), elements=st.floats(width=32)))
def test_any_numbers(vectors):
    assert list(json_vectors(vectors)) == plain(vectors)


def test_numbers_of_every_size():
    draws = np.random.default_rng(0)
    vectors = draws.standard_normal((200, 768)) * 10.0 ** draws.integers(-8, 5, (200, 1))
    vectors = vectors.astype(np.float32)
    assert list(json_vectors(vectors)) == plain(vectors)


def test_every_number_near_half_a_millionth():
    halves = (np.arange(-20000, 20000) + 0.5) / 10**6
    vectors = np.float32([np.nextafter(np.float32(halves), np.float32(way)) for way in (-1, 1)] + [halves])
    assert list(json_vectors(vectors)) == plain(vectors)
