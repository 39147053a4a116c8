"""The count of the operations of a step with LoRA, as TensorFlow counts those of the graph."""

import tensorflow as tf

from official_bert import BertConfig, BertModel
from official_bert.extensions.adaptation.lora import enable_lora
from official_bert.training.flops import forward_flops
from tests.graphs import gradient_graph, products_of
from tests.training.test_flops import TINY, operations_of


def list_computed(graph) -> list[tf.Operation]:
    """List the nodes of a graph that its outputs need; others are not computed."""
    nodes = {}
    waiting = [tensor.op for tensor in graph.outputs]
    while waiting:
        node = waiting.pop()
        if node.name not in nodes:
            nodes[node.name] = node
            waiting += [tensor.op for tensor in node.inputs]
    return list(nodes.values())


def count_operations_with_lora(first_layer: int) -> int:
    """Count the operations of a step that trains adapters of rank 1 from a layer on, without
    those of the adapters.
    """
    model = BertModel(TINY)
    enable_lora(model, 1, first_layer)

    def sum_outputs(ids):
        outputs = model(ids)
        return tf.reduce_sum(outputs.pooled_output)

    ids = tf.TensorSpec([3, 96], tf.int32)
    graph = gradient_graph(model, sum_outputs, ids)
    total = 0
    for product in products_of(list_computed(graph)):
        first, second = product.inputs
        is_of_adapters = 1 in (*first.shape, *second.shape)
        if not is_of_adapters:
            total += operations_of(product)
    return total


def test_lora_computes_the_gradient_of_each_whole_kernel():
    """Of its layers there are all three products, of those below one, though no kernel of the
    encoder is trained.
    """
    one_layer = BertConfig.from_dict(TINY.to_dict() | {"num_hidden_layers": 1})
    forward_of_a_layer = forward_flops(TINY, 3, 96) - forward_flops(one_layer, 3, 96)
    difference = count_operations_with_lora(0) - count_operations_with_lora(1)
    assert difference == 2 * forward_of_a_layer
