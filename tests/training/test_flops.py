"""The count of operations, by hand and as TensorFlow counts those of the graph."""

import tensorflow as tf

from official_bert import BertConfig, BertPretrainer
from official_bert.modeling import vocabulary_loss
from official_bert.tasks.pretraining.objective import PretrainingObjective
from official_bert.training.flops import forward_flops, training_flops
from tests import toy
from tests.graphs import gradient_graph, products_of

TINY = BertConfig(
    vocab_size=1000,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=256,
)


def test_a_count_by_hand():
    """BERT-Base on 2 sequences of 128 tokens with 20 predictions."""
    base = BertConfig.from_size("base")
    projections = 4 * 128 * 768 * 768  # query, key, value, output
    attention = 2 * 128 * 128 * 768  # scores, context
    feed_forward = 2 * 128 * 768 * 3072
    layer = 2 * (projections + attention + feed_forward)
    pooler = 2 * 768 * 768
    transform = 768 * 768
    scores = 768 * 30522
    words = 2 * 20 * (transform + scores)
    next_sentence = 2 * 768 * 2

    encoder = 12 * layer + pooler
    assert forward_flops(base, 2, 128) == 2 * encoder
    pretraining = 2 * (encoder + words + next_sentence)
    assert forward_flops(base, 2, 128, 20) == pretraining
    assert training_flops(base, 2, 128, 20) == 3 * pretraining


def test_a_count_is_close_to_the_usual_estimate():
    """6 operations a token for each weight of the layers; attention comes on top."""
    base = BertConfig.from_size("base")
    layer_weights = 4 * 768**2 + 2 * 768 * 3072
    estimate = 6 * 12 * layer_weights * 128
    ratio = training_flops(base, 1, 128) / estimate
    assert 1.0 < ratio < 1.05


def operations_of(product) -> int:
    """Two for each term of each value of a product, by the shapes in the graph."""
    first_shape = product.inputs[0].shape
    (result,) = product.outputs
    flag = "transpose_a" if product.type == "MatMul" else "adj_x"
    is_transposed = product.get_attr(flag)
    num_terms = first_shape[-2] if is_transposed else first_shape[-1]
    return 2 * result.shape.num_elements() * num_terms


def test_the_graph_of_a_step_has_the_same_products(monkeypatch):
    """Every product of the forward and backward pass, by its shapes.

    The step uses the logits here. The loss by blocks leaves them in the graph, unused.
    """
    monkeypatch.setattr(vocabulary_loss, "is_available", lambda: False)
    num_sequences = 3
    length = 96
    num_predictions = 14
    config = BertConfig.from_dict(TINY.to_dict() | toy.NO_DROPOUT)
    model = BertPretrainer(config)
    objective = PretrainingObjective(model, batch_size=num_sequences)

    def compute_loss(features):
        totals = objective.totals(features)
        loss, _ = objective.loss(features, totals, None)
        return loss

    tokens = tf.TensorSpec([num_sequences, length], tf.int32)
    predictions = tf.TensorSpec([num_sequences, num_predictions], tf.int32)
    signature = {
        "input_ids": tokens,
        "input_mask": tokens,
        "segment_ids": tokens,
        "masked_lm_positions": predictions,
        "masked_lm_ids": predictions,
        "masked_lm_weights": tf.TensorSpec([num_sequences, num_predictions], tf.float32),
        "next_sentence_labels": tf.TensorSpec([num_sequences, 1], tf.int32),
    }
    graph = gradient_graph(model, compute_loss, signature)
    products = products_of(graph.get_operations())
    num_operations = sum(operations_of(product) for product in products)
    # The product of the segments with their table has two: forward, and for the gradient of the
    # table.
    segments = 2 * 2 * num_sequences * length * TINY.type_vocab_size * TINY.hidden_size
    expected = training_flops(TINY, num_sequences, length, num_predictions)
    assert num_operations == expected + segments
