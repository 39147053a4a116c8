"""Queries are filled up with [MASK] or truncated; punctuation of documents does not count."""

import numpy as np
import pytest

from official_bert import FullTokenizer
from official_bert.extensions.late_interaction.multi_vector_folder import MultiVectorModules
from official_bert.extensions.late_interaction.token_features import TokenRules
from official_bert.io.errors import InputError

TEXTS = ["The cat sat.", "cat", "a train left the station at noon"]


@pytest.fixture(scope="module")
def features(base):
    return FullTokenizer.from_pretrained(str(base))(TEXTS, max_seq_length=12)


def make_rules(base, longest: int = 12, **settings) -> TokenRules:
    tokenizer = FullTokenizer.from_pretrained(str(base))
    return TokenRules.make(
        tokenizer, MultiVectorModules("", **{"query_length": 7} | settings), longest
    )


def words_of(base, inputs) -> list[list[str]]:
    """The words of the tokens, without padding."""
    words = FullTokenizer.from_pretrained(str(base)).inv_vocab
    ids = np.asarray(inputs["input_ids"])
    return [
        [words[one] for one, is_token in zip(row, mask, strict=True) if is_token]
        for row, mask in zip(ids, np.asarray(inputs["input_mask"]), strict=True)
    ]


@pytest.mark.parametrize("attends", [False, True])
def test_queries_have_one_length(base, features, attends):
    inputs, counts = make_rules(base, attend_to_expansion=attends).expand_queries(features)
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
    inputs, counts = make_rules(base).mark_documents(features)
    for name, values in features.items():
        np.testing.assert_array_equal(inputs[name], values)
    np.testing.assert_array_equal(counts, is_token & (ids != point))
    _, counts = make_rules(base, skip_punctuation=False).mark_documents(features)
    np.testing.assert_array_equal(counts, is_token)


def test_markers_stand_behind_the_first_token(base, features):
    vocab = FullTokenizer.from_pretrained(str(base)).vocab
    markers = {"query_marker": "noon", "document_marker": " station "}
    rules = make_rules(base, **markers, attend_to_expansion=False)
    inputs, counts = rules.mark_documents(features)
    assert words_of(base, inputs) == [
        ["[CLS]", "station", "the", "cat", "sat", ".", "[SEP]"],
        ["[CLS]", "station", "cat", "[SEP]"],
        ["[CLS]", "station", "a", "train", "left", "the", "station", "at", "noon", "[SEP]"],
    ]
    is_point = np.asarray(inputs["input_ids"]) == vocab["."]
    np.testing.assert_array_equal(counts, (np.asarray(inputs["input_mask"]) > 0) & ~is_point)
    inputs, counts = rules.expand_queries(features)
    assert words_of(base, inputs) == [
        ["[CLS]", "noon", "the", "cat", "sat", ".", "[SEP]"],
        ["[CLS]", "noon", "cat", "[SEP]"],
        ["[CLS]", "noon", "a", "train", "left", "the", "[SEP]"],
    ]
    assert counts.shape == (3, 7)
    unexpanded, counts = make_rules(base, **markers, query_length=0).expand_queries(features)
    assert words_of(base, unexpanded)[1] == ["[CLS]", "noon", "cat", "[SEP]"]
    np.testing.assert_array_equal(counts, unexpanded["input_mask"])


def test_a_marker_shortens_a_text_that_would_be_too_long(base, features):
    rules = make_rules(base, longest=9, document_marker="noon")
    inputs, _ = rules.mark_documents(features)
    assert words_of(base, inputs) == [
        ["[CLS]", "noon", "the", "cat", "sat", ".", "[SEP]"],
        ["[CLS]", "noon", "cat", "[SEP]"],
        ["[CLS]", "noon", "a", "train", "left", "the", "station", "at", "[SEP]"],
    ]
    assert inputs["input_ids"].shape == (3, 9)


def test_a_marker_that_the_vocabulary_lacks_is_refused(base):
    with pytest.raises(InputError, match=r"--document_marker=.D.: is no word of the vocabulary"):
        make_rules(base, document_marker="[D]")
