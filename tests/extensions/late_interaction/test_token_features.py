"""Queries are filled up with [MASK] or truncated; punctuation of documents does not count."""

import numpy as np
import pytest

from official_bert import FullTokenizer
from official_bert.extensions.late_interaction.token_features import TokenRules

TEXTS = ["The cat sat.", "cat", "a train left the station at noon"]


@pytest.fixture(scope="module")
def features(base):
    return FullTokenizer.from_pretrained(str(base))(TEXTS, max_seq_length=12)


def make_rules(base, **settings) -> TokenRules:
    tokenizer = FullTokenizer.from_pretrained(str(base))
    values = {"query_length": 7, "attends": False, "skips_punctuation": True} | settings
    return TokenRules.make(tokenizer, **values)


@pytest.mark.parametrize("attends", [False, True])
def test_queries_have_one_length(base, features, attends):
    inputs, counts = make_rules(base, attends=attends).expand_queries(features)
    vocab = FullTokenizer.from_pretrained(str(base)).vocab
    words = [
        ["[CLS]", "the", "cat", "sat", ".", "[SEP]", "[MASK]"],
        ["[CLS]", "cat", "[SEP]", *["[MASK]"] * 4],
        ["[CLS]", "a", "train", "left", "the", "station", "[SEP]"],
    ]
    np.testing.assert_array_equal(
        inputs["input_ids"], [[vocab[word] for word in row] for row in words]
    )
    np.testing.assert_array_equal(counts, np.ones((3, 7)))
    lengths = np.array([[7], [7], [7]]) if attends else np.array([[6], [3], [7]])
    np.testing.assert_array_equal(inputs["input_mask"], np.arange(7) < lengths)
    assert not np.any(inputs["segment_ids"])


def test_queries_grow_beyond_the_batch(base, features):
    inputs, counts = make_rules(base, query_length=20).expand_queries(features)
    assert inputs["input_ids"].shape == counts.shape == (3, 20)
    assert np.all(inputs["input_ids"][:, 12:] == 4)


def test_without_a_length_queries_stay_as_they_are(base, features):
    inputs, counts = make_rules(base, query_length=0).expand_queries(features)
    for name, values in features.items():
        np.testing.assert_array_equal(inputs[name], values)
    np.testing.assert_array_equal(counts, features["input_mask"])


def test_punctuation_of_documents_does_not_count(base, features):
    ids = np.asarray(features["input_ids"])
    is_token = np.asarray(features["input_mask"]) > 0
    point = FullTokenizer.from_pretrained(str(base)).vocab["."]
    assert (ids == point).any()
    counts = make_rules(base).mark_documents(features)
    np.testing.assert_array_equal(counts, is_token & (ids != point))
    counts = make_rules(base, skips_punctuation=False).mark_documents(features)
    np.testing.assert_array_equal(counts, is_token)
