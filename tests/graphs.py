"""The graph of a loss and its gradients, and the products in it."""

from collections.abc import Callable

import tensorflow as tf

PRODUCTS = ("MatMul", "BatchMatMulV2")


def gradient_graph(model, loss: Callable, *signature) -> tf.Graph:
    """Traces a loss of arguments of this signature, and its gradients by all weights of a model."""

    @tf.function(autograph=False)
    def gradients(*arguments):
        with tf.GradientTape() as tape:
            value = loss(*arguments)
        return tape.gradient(value, [weight.value for weight in model.trainable_variables])

    return gradients.get_concrete_function(*signature).graph


def products_of(operations) -> list[tf.Operation]:
    return [one for one in operations if one.type in PRODUCTS]
