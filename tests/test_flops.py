"""The count of operations, by hand and as TensorFlow counts those of the graph."""

import tensorflow as tf

from benchmarks.flops import forward_flops, training_flops
from official_bert import BertConfig, BertPretrainer
from official_bert.modeling import vocabulary_loss
from official_bert.tasks.pretraining.objective import PretrainingObjective
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
    layer = 2 * (
        4 * 128 * 768 * 768  # query, key, value, output
        + 2 * 128 * 128 * 768  # scores, context
        + 2 * 128 * 768 * 3072
    )
    words = 2 * 20 * 768 * (768 + 30522)
    expected = 2 * (12 * layer + 2 * 768 * 768 + words + 2 * 768 * 2)
    assert forward_flops(base, 2, 128, 20) == expected
    assert training_flops(base, 2, 128, 20) == 3 * expected
    assert forward_flops(base, 2, 128) == 2 * (12 * layer + 2 * 768 * 768)
    assert training_flops(base, 2, 128, 0, 5) == 2 * (3 * 2 * 768 * 768 + (3 * 7 + 5) * layer)
    # The usual estimate is 6 operations a token for each weight of the layers; attention comes on
    # top.
    weights = 12 * (4 * 768**2 + 2 * 768 * 3072)
    assert 1.0 < training_flops(base, 1, 128) / (6 * weights * 128) < 1.05


def operations_of(product) -> int:
    """Two for each term of each value of a product, by the shapes in the graph."""
    first, (result,) = product.inputs[0].shape, product.outputs
    is_turned = product.get_attr("transpose_a" if product.type == "MatMul" else "adj_x")
    return 2 * result.shape.num_elements() * first[-2 if is_turned else -1]


def test_the_graph_of_a_step_has_the_same_products(monkeypatch):
    """Every product of the forward and backward pass, by its shapes.

    The step uses the logits here. The loss by blocks leaves them in the graph, unused.
    """
    monkeypatch.setattr(vocabulary_loss, "is_available", lambda: False)
    num_sequences = 3
    model = BertPretrainer(BertConfig.from_dict(TINY.to_dict() | toy.NO_DROPOUT))
    length, predictions = 96, 14
    objective = PretrainingObjective(model, batch_size=num_sequences)
    shapes = {
        **dict.fromkeys(("input_ids", "input_mask", "segment_ids"), (length, tf.int32)),
        **dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), (predictions, tf.int32)),
        "masked_lm_weights": (predictions, tf.float32),
        "next_sentence_labels": (1, tf.int32),
    }
    signature = {
        name: tf.TensorSpec([num_sequences, size], dtype) for name, (size, dtype) in shapes.items()
    }
    graph = gradient_graph(
        model, lambda x: objective.loss(x, objective.totals(x), None)[0], signature
    )
    found = sum(map(operations_of, products_of(graph.get_operations())))
    # The product of the segments with their table has two: forward, and for the gradient of the
    # table.
    segments = 2 * 2 * num_sequences * length * TINY.type_vocab_size * TINY.hidden_size
    counted = training_flops(TINY, num_sequences, length, predictions)
    assert found == counted + segments
