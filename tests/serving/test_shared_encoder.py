"""An encoder that is computed once for several models, by its calls."""

import types

import numpy as np
import pytest
import tensorflow as tf

from official_bert.config import BIDIRECTIONAL, BertConfig
from official_bert.modeling.bert import BertModel, BertOutput
from official_bert.modeling.layers import override_calls
from official_bert.serving.shared_encoder import SharedEncoder
from tests import toy

HIDDEN = 3


class CountingEncoder:
    """Its vectors are the ids; `runs` counts how often a graph has computed them."""

    def __init__(self):
        self.runs = tf.Variable(0)
        self.flags = []
        self.config = types.SimpleNamespace(direction=BIDIRECTIONAL)
        self.pooler = types.SimpleNamespace(dense=lambda vectors: -vectors)

    def __call__(self, ids, mask, segments, first_token_only):
        self.flags.append(first_token_only)
        with tf.control_dependencies([self.runs.assign_add(1)]):
            vectors = tf.repeat(tf.cast(ids, tf.float32)[..., None], HIDDEN, axis=2)
        return BertOutput(None, [], vectors[:, :1] if first_token_only else vectors, None)


def make_features(ids) -> list[tf.Tensor]:
    ids = tf.convert_to_tensor(ids)
    return [ids, tf.ones_like(ids), tf.zeros_like(ids)]


IDS = np.int32([[5, 6], [7, 8]])


@pytest.mark.parametrize("first_token_only", [False, True])
def test_the_same_tensors_are_computed_once(first_token_only):
    encoder, other = CountingEncoder(), CountingEncoder()
    other.pooler.dense = lambda vectors: 2 * vectors

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def answer(ids):
        shared = SharedEncoder([encoder, other], first_token_only)
        features = make_features(ids)
        first = shared(encoder, *features, True)
        second = shared(other, *features, first_token_only)
        return first.pooled_output, second.pooled_output, second.sequence_output

    pooled, other_pooled, vectors = answer(IDS)
    np.testing.assert_array_equal(pooled[:, 0], [-5, -7])
    np.testing.assert_array_equal(other_pooled[:, 0], [10, 14])
    assert vectors.shape == (2, 1 if first_token_only else 2, HIDDEN)
    assert encoder.runs.numpy() == 1
    assert other.runs.numpy() == 0
    assert encoder.flags == [first_token_only]


def test_a_call_in_a_loop_is_not_used_after_it():
    encoder = CountingEncoder()

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def answer(ids):
        shared = SharedEncoder([encoder])
        features = make_features(ids)

        def add(number, total):
            vectors = shared(encoder, *features, False).sequence_output
            return number + 1, total + tf.reduce_sum(vectors)

        _, total = tf.while_loop(lambda number, _: number < 2, add, [0, 0.0])
        return total, shared(encoder, *features, False).sequence_output

    total, vectors = answer(IDS)
    assert total == 2 * HIDDEN * IDS.sum()
    np.testing.assert_array_equal(vectors[..., 0], IDS)
    assert encoder.runs.numpy() == 3


def test_other_layers_are_left_alone():
    encoder = CountingEncoder()
    shared = SharedEncoder([encoder])
    assert shared(CountingEncoder(), *make_features(IDS), False) is None


@pytest.mark.parametrize(
    ("others", "runs"),
    [(IDS, 1), (IDS + 1, 2), (IDS[:1], 2), (IDS[:, :1], 2), (np.int32([[5, 6], [7, 9]]), 2)],
)
def test_equal_values_are_computed_once(others, runs):
    encoder = CountingEncoder()
    specs = [tf.TensorSpec([None, None], tf.int32)] * 2

    @tf.function(autograph=False, input_signature=specs)
    def answer(ids, other_ids):
        shared = SharedEncoder([encoder])
        shared(encoder, *make_features(ids), False)

        def in_loop(step, vectors):
            output = shared(encoder, *make_features(other_ids), False)
            return step + 1, output.sequence_output

        zeros = tf.zeros([tf.shape(other_ids)[0], tf.shape(other_ids)[1], HIDDEN])
        return tf.while_loop(lambda step, _: step < 1, in_loop, (0, zeros))[1]

    vectors = answer(IDS, others)
    np.testing.assert_array_equal(vectors[..., 0], others)
    assert encoder.runs.numpy() == runs


def test_an_outer_converter_computes_the_shared_encoder():
    encoder = BertModel(BertConfig.from_dict(toy.BERT_CONFIG))
    features = [values[:, :5] for values in make_features(np.int32([[5, 6, 7, 8, 9, 3]]))]
    vectors = tf.fill([1, 5, encoder.config.hidden_size], 2.0)
    calls = []

    def convert(layer, *inputs):
        calls.append(layer)
        return BertOutput(None, [], vectors, None)

    with override_calls(convert):
        with override_calls(SharedEncoder([encoder])):
            output = encoder(*features)
        encoder(*features)
    np.testing.assert_array_equal(output.sequence_output, vectors)
    np.testing.assert_array_equal(output.pooled_output, encoder.pooler.dense(vectors[:, 0]))
    assert calls == [encoder, encoder]
