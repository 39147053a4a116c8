"""The count of the operations of a step with LoRA, as TensorFlow counts those of the graph."""

import tensorflow as tf

from benchmarks.flops import training_flops
from official_bert import BertModel
from official_bert.extensions.adaptation.lora import enable_lora
from tests.graphs import gradient_graph, products_of
from tests.test_flops import TINY, operations_of


def products_with_lora(first_layer: int) -> int:
    """The operations of a step that trains adapters of rank 1 from a layer on, without those of
    the adapters.
    """
    model = BertModel(TINY)
    enable_lora(model, 1, first_layer)
    ids = tf.TensorSpec([3, 96], tf.int32)
    graph = gradient_graph(model, lambda ids: tf.reduce_sum(model(ids).pooled_output), ids)
    used, found = [tensor.op for tensor in graph.outputs], {}
    while used:  # what no output needs is not computed
        if (one := used.pop()).name not in found:
            found[one.name] = one
            used += [tensor.op for tensor in one.inputs]
    products = products_of(found.values())
    return sum(
        operations_of(one)
        for one in products
        if 1 not in (*one.inputs[0].shape, *one.inputs[1].shape)
    )


def test_lora_computes_the_gradient_of_each_whole_kernel():
    """Of its layers there are all three products, of those below one, though no kernel of the
    encoder is trained.
    """
    counted = [training_flops(TINY, 3, 96, 0, number) for number in range(2)]
    assert products_with_lora(0) - products_with_lora(1) == counted[0] - counted[1]
