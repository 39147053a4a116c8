"""Weights of words, and look-ups, follow from the logits of the masked LM, computed by numpy."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertPretrainer, FullTokenizer
from official_bert.extensions.sparse.model import BertSparseEncoder, QueryLookup
from official_bert.extensions.sparse.task import list_terms

IDS = np.array([[2, 5, 6, 5, 3, 0], [2, 7, 3, 0, 0, 0], [2, 8, 9, 10, 11, 3]], np.int32)
MASK = (IDS > 0).astype(np.int32)


@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_a_weight_is_the_log_of_the_largest_logit_of_a_token(base, activation):
    features = FullTokenizer.from_pretrained(str(base))(
        ["The cat sat on the mat.", "Rain"], max_seq_length=12
    )
    logits = BertPretrainer.from_pretrained(str(base))(features).masked_lm_logits.numpy()
    is_token = features["input_mask"] > 0
    assert not is_token.all()
    largest = np.where(is_token[..., None], logits, -np.inf).max(axis=1)
    expected = np.log(1 + np.maximum(largest, 0))
    if activation == "log1p_relu":
        expected = np.log(1 + expected)
    model = BertSparseEncoder.from_pretrained(str(base), activation=activation)
    np.testing.assert_allclose(model(features), expected, rtol=1e-5, atol=1e-6)
    assert 0 < (expected == 0).mean() < 1
    np.testing.assert_array_equal(model.encode_queries(features), model(features))


def test_a_look_up_counts_each_word_once_and_no_frame():
    lookup = QueryLookup(13, trainable=True)
    lookup.build()
    weights = np.linspace(0.5, 2, 13, dtype=np.float32)
    lookup.weights_by_word.assign(weights)
    expected = np.zeros((3, 13), np.float32)
    for row, words in enumerate([[5, 6], [7], [8, 9, 10, 11]]):
        expected[row, words] = weights[words]
    np.testing.assert_allclose(lookup(IDS, MASK), expected, rtol=1e-6)

    with tf.GradientTape() as tape:
        total = tf.reduce_sum(lookup(IDS, MASK))
    gradient = tape.gradient(total, lookup.weights_by_word.value)
    np.testing.assert_array_equal(tf.convert_to_tensor(gradient), (expected > 0).sum(axis=0))


def test_terms_are_sorted_by_weight_and_padded_with_zeros():
    weights = tf.constant([[0.0, 2.0, 0.0, 3.0], [0.0, 0.0, -1.0, 0.0], [0.0] * 4])
    terms = list_terms(weights, None)
    np.testing.assert_array_equal(terms["indices"][:, 0], [3, 2, 0])
    np.testing.assert_array_equal(terms["weights"], [[3, 2], [-1, 0], [0, 0]])
    one = list_terms(weights, 1)
    np.testing.assert_array_equal(one["weights"], [[3], [-1], [0]])
    all_terms = list_terms(weights, 9)
    np.testing.assert_array_equal(all_terms["weights"][0], [3, 2, 0, 0])


def test_pooling_by_text_has_the_values_and_gradients_of_all_logits(base):
    features = FullTokenizer.from_pretrained(str(base))(
        ["The cat sat on the mat.", "Rain", ""], max_seq_length=12
    )
    upstream = np.float32(np.random.default_rng(2).normal(size=(3, 50)))
    results = []
    for pools_by_text in (False, True):
        model = BertSparseEncoder.from_pretrained(str(base))
        model.pools_by_text = pools_by_text
        with tf.GradientTape() as tape:
            weights = model(features)
            loss = tf.reduce_sum(weights * upstream)
        variables = [one.value for one in model.trainable_variables]
        gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
        results.append([weights, *map(tf.convert_to_tensor, gradients)])
    for plain, by_text in zip(*results, strict=True):
        np.testing.assert_allclose(by_text, plain, rtol=1e-4, atol=1e-6)
    table_gradient = results[1][1]
    assert table_gradient.shape == (50, 16)
    assert np.any(table_gradient)
