"""The compiled functions between the products of a training on CPUs: each against numpy, and the
gradients of a training with all of them.

A gradient is compared in one direction with a difference quotient that numpy computes in float64.
"""

import math

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from official_bert import BertConfig, BertPretrainer
from official_bert.modeling import cpu_layers
from official_bert.modeling.dropout_masks import dropout_mask
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


# The functions in numpy.


def add_bias(product, bias):
    return product + bias


def gelu_with_bias(product, bias):
    x = product + bias
    cubic = x + 0.044715 * x**3
    scale = math.sqrt(2 / math.pi)
    share = 1 + np.tanh(scale * cubic)
    return 0.5 * x * share


def merged(product, residual, bias, gamma, beta, seed, index):
    keep = dropout_mask(product, RATE, seed, index).numpy()
    scaled = (product + bias) / (1 - RATE)
    x = np.where(keep, scaled, 0) + residual
    mean = x.mean(-1, keepdims=True)
    variance = x.var(-1, keepdims=True)
    deviation = np.sqrt(variance + 1e-12)
    return (x - mean) / deviation * gamma + beta


def attention_weights(scores, bias, seed, index):
    keep = dropout_mask(scores, RATE, seed, index).numpy()
    biased = scores + bias
    largest = biased.max(-1, keepdims=True)
    exponentials = np.exp(biased - largest)
    totals = exponentials.sum(-1, keepdims=True)
    probabilities = exponentials / totals
    scaled = probabilities / (1 - RATE)
    return np.where(keep, scaled, 0)


RATE = 0.3
DROPOUT = (tf.constant([1, 2]), tf.constant(3))
MATRIX = drawn(ROWS, WIDTH)
BIAS = drawn(WIDTH, dtype="float32")
GAMMA = drawn(WIDTH, dtype="float32")
BETA = drawn(WIDTH, dtype="float32")
RESIDUAL = drawn(ROWS, WIDTH)
SUB_LAYER = (MATRIX, RESIDUAL, BIAS, GAMMA, BETA)
SCORES = drawn(2, 3, 4, WIDTH)
DRAWN_BIAS = RANDOM.choice([0.0, -10000.0], (2, 1, 1, WIDTH))
SCORE_BIAS = tf.constant(DRAWN_BIAS, tf.float32)


@pytest.mark.parametrize(
    ("function", "arguments", "num_gradients", "reference"),
    [
        pytest.param(
            cpu_layers.activated(None),
            (MATRIX, BIAS),
            2,
            add_bias,
            id="bias",
        ),
        pytest.param(
            cpu_layers.activated(gelu),
            (MATRIX, BIAS),
            2,
            gelu_with_bias,
            id="gelu",
        ),
        pytest.param(
            cpu_layers.merged(RATE),
            (*SUB_LAYER, *DROPOUT),
            5,
            merged,
            id="end",
        ),
        pytest.param(
            cpu_layers.attention_weights(RATE),
            (SCORES, SCORE_BIAS, *DROPOUT),
            1,
            attention_weights,
            id="softmax",
        ),
    ],
)
def test_outputs_and_gradients_are_those_of_numpy(function, arguments, num_gradients, reference):
    """The first arguments have a gradient."""
    sources = arguments[:num_gradients]
    others = arguments[num_gradients:]
    numbers = [to_float64(tensor) for tensor in sources]
    numbers += [tensor.numpy() for tensor in others]
    expected = reference(*numbers)
    upstream_16 = drawn(*expected.shape)
    upstream = to_float64(upstream_16)

    @tf.function
    def run():
        with tf.GradientTape() as tape:
            tape.watch(sources)
            output = function(*arguments)
        output_gradients = tf.cast(upstream, output.dtype)
        return output, tape.gradient(output, sources, output_gradients)

    output, gradients = run()
    gradient_types = [gradient.dtype for gradient in gradients]
    assert gradient_types == [source.dtype for source in sources]
    assert_allclose(
        to_float64(output),
        expected,
        rtol=2e-2,
        atol=1e-2,
    )

    def weighted_sum(position, moved):
        """The sum of the outputs by `upstream`, with another number at a position."""
        moved_numbers = list(numbers)
        moved_numbers[position] = moved
        return np.sum(upstream * reference(*moved_numbers))

    for position, tensor in enumerate(gradients):
        gradient = to_float64(tensor)
        direction = RANDOM.normal(size=gradient.shape)
        number = numbers[position]
        higher = weighted_sum(position, number + 1e-4 * direction)
        lower = weighted_sum(position, number - 1e-4 * direction)
        expected_slope = (higher - lower) / 2e-4
        slope = np.sum(gradient * direction)
        squared_norm = np.sum(np.square(gradient))
        size = np.sqrt(squared_norm * np.mean(np.square(direction)))
        assert slope == pytest.approx(expected_slope, abs=2e-2 * size)


def to_float64(tensor) -> np.ndarray:
    return np.asarray(tf.cast(tensor, tf.float64))


@pytest.mark.parametrize(
    ("hidden_rate", "attention_rate", "recompute_layers"),
    [
        (0.1, 0.1, True),
        (0.3, 0.0, False),
        *in_test_long(
            (0.1, 0.1, False),
            (0.3, 0.0, True),
            (0.0, 0.3, False),
            (0.0, 0.3, True),
        ),
    ],
)
def test_gradients_of_a_training_are_those_of_the_plain_layers(
    monkeypatch, hidden_rate, attention_rate, recompute_layers
):
    changes = {
        "hidden_dropout_prob": hidden_rate,
        "attention_probs_dropout_prob": attention_rate,
        "num_hidden_layers": 1,
        "vocab_size": 1000,
    }
    config = BertConfig.from_dict(toy.BERT_CONFIG | changes)
    batch = load_batch(GOLDEN / "model_gelu", "usual")

    monkeypatch.setattr(cpu_layers, "MIN_ELEMENTS", 0)

    def losses_and_gradients(dtype, is_available):
        monkeypatch.setattr(cpu_layers, "is_available", lambda: is_available)
        with computing_in(dtype):
            seed_initial_weights(3)
            model = BertPretrainer(config, recompute_layers=recompute_layers)
        objective = PretrainingObjective(model, 2)
        weights = [weight.value for weight in model.trainable_variables]

        @tf.function
        def run():
            with tf.GradientTape() as tape:
                totals = objective.totals(batch)
                seed = tf.constant([1, 2])
                loss, sums = objective.loss(batch, totals, seed)
            gradients = tape.gradient(loss, weights)
            dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
            return loss, sums, dense

        graph = run.get_concrete_function().graph
        is_fused = any("merge" in name for name in called_functions(graph))
        loss, sums, gradients = run()
        flat_gradients = [np.ravel(gradient) for gradient in gradients]
        return is_fused, float(loss), sums, np.concatenate(flat_gradients)

    is_fused, loss, sums, expected = losses_and_gradients("float32", is_available=False)
    assert not is_fused
    expected_norm = np.linalg.norm(expected)
    is_fused, fused_loss, _, gradients = losses_and_gradients("float32", is_available=True)
    assert is_fused
    assert fused_loss == pytest.approx(loss, rel=1e-6)
    assert np.linalg.norm(gradients - expected) < 1e-6 * expected_norm

    errors = []
    for is_available in (False, True):
        is_fused, loss_16, sums_16, gradients = losses_and_gradients("bfloat16", is_available)
        assert is_fused == is_available
        assert loss_16 == pytest.approx(loss, rel=2e-2)
        assert sums_16.keys() == sums.keys()
        errors.append(np.linalg.norm(gradients - expected) / expected_norm)
    plain_error, fused_error = errors
    assert fused_error < 1.3 * plain_error < 0.1


def called_functions(graph: tf.Graph) -> list[str]:
    """Returns the names of the functions that a graph calls."""
    operations = graph.get_operations()
    return [call.get_attr("f").name for call in operations if call.type == "PartitionedCall"]


def test_small_inputs_and_unknown_shapes_are_not_compiled():
    dense = cpu_layers.Dense(4, BertConfig(vocab_size=10), activation="gelu")
    dense.build((None, 8))

    def is_compiled(shape) -> bool:
        function = tf.function(lambda x: dense.apply(x, DROPOUT[0]))
        graph = function.get_concrete_function(tf.TensorSpec(shape)).graph
        return bool(called_functions(graph))

    assert is_compiled((2**14, 8))
    assert not is_compiled((2**14 - 1, 8))
    assert not is_compiled((None, 8))
