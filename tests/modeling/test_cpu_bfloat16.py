"""The compiled functions between bfloat16's products: each against numpy, and a training's
gradients with all of them.

A gradient is compared in one direction with a difference quotient that numpy computes in float64.
"""

import math

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertConfig, BertPretrainer
from official_bert.modeling import cpu_bfloat16
from official_bert.modeling.layers import gelu
from official_bert.tasks.pretraining.objective import PretrainingObjective
from official_bert.training.precision import computing_in
from official_bert.training.starting_point import seed_initial_weights
from tests import toy
from tests.golden_model import load_batch
from tests.shared import GOLDEN, in_test_long

RANDOM = np.random.default_rng(5)
ROWS, WIDTH = 24, 40


def drawn(*shape: int, dtype="bfloat16") -> tf.Tensor:
    return tf.cast(RANDOM.normal(size=shape), dtype)


def softmax(x):
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def merged(product, residual, bias, gamma, beta, epsilon, keep, rate):
    x = np.where(keep, (product + bias) / (1 - rate), 0) + residual
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(
        x.var(-1, keepdims=True) + epsilon
    ) * gamma + beta


def activated(product, bias):
    x = product + bias
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


KEPT = tf.constant(RANDOM.random((ROWS, WIDTH)) > 0.3), tf.constant(0.3)
ALL = tf.constant(True), tf.constant(0.0)
MATRIX, VECTOR = drawn(ROWS, WIDTH), drawn(WIDTH, dtype="float32")
VECTORS = VECTOR, drawn(WIDTH, dtype="float32"), drawn(WIDTH, dtype="float32")
SUB_LAYER = MATRIX, drawn(ROWS, WIDTH), *VECTORS, tf.constant(1e-12)
SCORES = (
    drawn(2, 3, 4, WIDTH),
    tf.constant(RANDOM.choice([0.0, -10000.0], (2, 1, 1, WIDTH)), tf.float32),
)
KEPT_SCORES = tf.constant(RANDOM.random((2, 3, 4, WIDTH)) > 0.3), KEPT[1]
# The function, its arguments, of which the first ones have a gradient, and the function in numpy.
CASES = {
    "bias": (
        cpu_bfloat16.activated(None),
        (MATRIX, VECTOR),
        2,
        lambda product, bias: product + bias,
    ),
    "gelu": (cpu_bfloat16.activated(gelu), (MATRIX, VECTOR), 2, activated),
    "end": (cpu_bfloat16.merged, (*SUB_LAYER, *ALL), 5, merged),
    "end, dropout": (cpu_bfloat16.merged, (*SUB_LAYER, *KEPT), 5, merged),
    "softmax": (
        cpu_bfloat16.attention_weights,
        (*SCORES, *ALL),
        1,
        lambda x, bias, keep, rate: softmax(x + bias),
    ),
    "softmax, dropout": (
        cpu_bfloat16.attention_weights,
        (*SCORES, *KEPT_SCORES),
        1,
        lambda x, bias, keep, rate: np.where(keep, softmax(x + bias) / (1 - rate), 0),
    ),
}


def in_float64(tensors) -> list[np.ndarray]:
    return [np.asarray(tf.cast(tensor, tf.float64)) for tensor in tensors]


@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_are_those_of_numpy(case):
    function, arguments, count, reference = CASES[case]
    numbers = [
        array if i < count else arguments[i].numpy()
        for i, array in enumerate(in_float64(arguments[:count]))
    ]
    numbers += [tensor.numpy() for tensor in arguments[count:]]
    expected = reference(*numbers)
    upstream = np.asarray(
        tf.cast(tf.cast(RANDOM.normal(size=expected.shape), tf.bfloat16), tf.float64)
    )

    @tf.function
    def run():
        with tf.GradientTape() as tape:
            tape.watch(arguments[:count])
            output = function(*arguments)
        return output, tape.gradient(output, arguments[:count], tf.cast(upstream, output.dtype))

    output, gradients = run()
    assert [gradient.dtype for gradient in gradients] == [
        argument.dtype for argument in arguments[:count]
    ]
    np.testing.assert_allclose(in_float64([output])[0], expected, rtol=2e-2, atol=1e-2)
    for number, gradient in enumerate(in_float64(gradients)):
        direction = RANDOM.normal(size=gradient.shape)
        ends = []
        for step in (1e-4, -1e-4):
            moved = [*numbers[:number], numbers[number] + step * direction, *numbers[number + 1 :]]
            ends.append(np.sum(upstream * reference(*moved)))
        sizes = np.sqrt(np.sum(np.square(gradient)) * np.mean(np.square(direction)))
        assert np.sum(gradient * direction) == pytest.approx(
            (ends[0] - ends[1]) / 2e-4,
            abs=2e-2 * sizes,
        )


@pytest.mark.parametrize(
    ("hidden_rate", "attention_rate", "recompute_layers"),
    [
        (0.1, 0.1, True),
        (0.3, 0.0, False),
        *in_test_long((0.1, 0.1, False), (0.3, 0.0, True), (0.0, 0.3, False), (0.0, 0.3, True)),
    ],
)
def test_gradients_of_a_training_are_as_near_to_float32_as_without(
    monkeypatch, hidden_rate, attention_rate, recompute_layers
):
    rates = {"hidden_dropout_prob": hidden_rate, "attention_probs_dropout_prob": attention_rate}
    config = BertConfig.from_dict(
        toy.BERT_CONFIG | rates | {"num_hidden_layers": 1, "vocab_size": 1000}
    )
    batch = load_batch(GOLDEN / "model_gelu", "usual")

    def losses_and_gradients(dtype, is_available):
        monkeypatch.setattr(cpu_bfloat16, "is_available", is_available)
        with computing_in(dtype):
            seed_initial_weights(3)
            model = BertPretrainer(config, recompute_layers=recompute_layers)
        objective = PretrainingObjective(model, 2)
        weights = [weight.value for weight in model.trainable_variables]

        @tf.function
        def run():
            with tf.GradientTape() as tape:
                loss, sums = objective.loss(batch, objective.totals(batch), tf.constant([1, 2]))
            return loss, sums, [tf.convert_to_tensor(one) for one in tape.gradient(loss, weights)]

        kinds = {operation.type for operation in run.get_concrete_function().graph.get_operations()}
        loss, sums, gradients = run()
        return (
            "PartitionedCall" in kinds,
            float(loss),
            sums,
            np.concatenate([np.ravel(one) for one in gradients]),
        )

    is_fused, loss, sums, expected = losses_and_gradients("float32", cpu_bfloat16.is_available)
    assert not is_fused
    errors = []
    for is_available in (lambda: False, cpu_bfloat16.is_available):
        is_fused, loss_16, sums_16, gradients = losses_and_gradients("bfloat16", is_available)
        assert loss_16 == pytest.approx(loss, rel=2e-2)
        assert sums_16.keys() == sums.keys()
        errors.append(np.linalg.norm(gradients - expected) / np.linalg.norm(expected))
    assert is_fused
    assert errors[1] < 1.3 * errors[0] < 0.1
