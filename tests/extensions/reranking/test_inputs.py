"""Pairs are encoded as by the tokenizer, and documents of other queries are drawn from a batch."""

import numpy as np
import pytest

from official_bert import FullTokenizer
from official_bert.data.model_inputs import ModelInputs, model_input_ids
from official_bert.data.text_tables import Example
from official_bert.extensions.reranking.inputs import (
    NO_DOCUMENT,
    build_scored_pairs,
    build_training_lists,
    build_unscored_pairs,
)
from official_bert.extensions.reranking.rankings import Document, Ranking
from official_bert.features import ENCODER_INPUTS


def ranking(query: str, **labels: float) -> Ranking:
    """Documents are named by their words, with _ between them."""
    documents = [Document(name.replace("_", " "), label) for name, label in labels.items()]
    return Ranking("", query, tuple(documents))


RANKINGS = [
    ranking("the cat", it_sat_on_the_mat=1, rain=0),
    ranking("a train", the_driver_was_in_the_park_at_noon=1),
    ranking("the sunny day", the_day_was_sunny=0, a_mat=2, the_cat_sat=0),
]


@pytest.fixture(scope="module")
def tokenizer(base):
    return FullTokenizer.from_pretrained(str(base))


def expected_inputs(tokenizer, pairs, length, max_seq_length=12):
    inputs = ModelInputs(model_input_ids(tokenizer, *pair, max_seq_length) for pair in pairs)
    return inputs.features(np.arange(len(pairs)), length)


def test_pairs_of_an_evaluation_are_encoded_as_texts_are(tokenizer):
    encoded = build_scored_pairs(RANKINGS, tokenizer, 12)
    pairs = [(one.query, document.text) for one in RANKINGS for document in one.documents]
    expected = expected_inputs(tokenizer, pairs, 12)
    features = encoded.features(np.arange(6), 12)
    for name in ENCODER_INPUTS:
        np.testing.assert_array_equal(features[name], expected[name])
    np.testing.assert_array_equal(encoded.lengths, expected["input_mask"].sum(axis=1))
    assert encoded.lengths.max() == 12  # which is truncated
    assert encoded.labels.tolist() == [1, 0, 1, 0, 2, 0]


def test_pairs_of_a_prediction_keep_the_order_of_rows(tokenizer):
    rows = [Example("", "the cat", ("rain",), ("a mat",)), Example("", "the cat", (), ("rain",))]
    encoded = build_unscored_pairs(rows, tokenizer, 12)
    texts = [encoded.texts[row] for row in encoded.documents]
    assert texts == ["rain", "a mat", "rain"]
    assert encoded.examples == rows


def test_examples_are_filled_to_the_same_number_of_documents(tokenizer):
    encoded = build_training_lists(RANKINGS, tokenizer, 12)
    batch = encoded.features(np.array([2, 0]), 16)
    assert batch["input_ids"].shape == (2, 3, 16)
    np.testing.assert_array_equal(batch["labels"], [[0, 2, 0], [1, 0, 0]])
    np.testing.assert_array_equal(batch["is_document"], [[1, 1, 1], [1, 1, 0]])
    pairs = [(RANKINGS[2].query, document.text) for document in RANKINGS[2].documents]
    expected = expected_inputs(tokenizer, pairs, 16)
    for name in ENCODER_INPUTS:
        np.testing.assert_array_equal(batch[name][0], expected[name])
    assert batch["input_mask"][1, 2].sum() == 2
    np.testing.assert_array_equal(encoded.lengths, batch_lengths(encoded))


def batch_lengths(encoded) -> np.ndarray:
    masks = encoded.features(np.arange(len(encoded.queries)), 16)["input_mask"]
    return masks.sum(axis=-1).max(axis=-1)


def test_negatives_are_documents_of_other_queries_of_the_batch(tokenizer):
    rankings = [
        *RANKINGS,
        ranking("the cat", the_mat=1, noon=0),
        ranking("a train", rain=1),
    ]
    encoded = build_training_lists(rankings, tokenizer, 12, num_negatives=3)
    rows = np.array([3, 0, 2])
    batch = encoded.features(rows, 8)
    assert batch["input_ids"].shape[1] == 3 + 3
    assert batch["input_ids"].shape[2] == 12, "as long as the longest pair, and a multiple of 8"
    assert not batch["labels"][:, 3:].any()

    negatives = encoded._draw_negatives(rows)
    query_documents = {
        row: set(encoded.documents[encoded.queries == encoded.queries[row]].ravel()) for row in rows
    }
    in_batch = set(encoded.documents[rows].ravel()) - {NO_DOCUMENT}
    for row, documents in zip(rows, negatives, strict=True):
        chosen = set(documents.tolist()) - {NO_DOCUMENT}
        assert chosen <= in_batch - query_documents[row]
        assert len(chosen) == min(3, len(in_batch - query_documents[row]))
    # The same batch draws the same documents, however often it is read.
    np.testing.assert_array_equal(negatives, encoded._draw_negatives(rows))
    alone = encoded.features(np.array([1]), 12)
    assert alone["is_document"][0, 3:].sum() == 0
