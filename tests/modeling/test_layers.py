"""The activations, dropout and cross-entropy by numpy, and LoRA and int8 on the dense layers of
our models.
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertClassifier, BertConfig, BertModel, InputError
from official_bert.config import ACTIVATIONS
from official_bert.modeling import layers
from official_bert.modeling.layers import dropout
from official_bert.modeling.losses import cross_entropy
from tests import toy

CONFIG = BertConfig.from_dict(toy.BERT_CONFIG | {"initializer_range": 0.3})
IDS = np.random.default_rng(1).integers(5, len(toy.VOCABULARY), (3, 7)).astype(np.int32)
SEED = tf.constant([5, 7])
INTERMEDIATE = "bert/encoder/layer_0/intermediate/dense"


def normal(*shape) -> np.ndarray:
    draws = np.random.default_rng(3)
    return draws.normal(size=shape).astype(np.float32)


def tanh_gelu(x):
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + np.tanh(inner))


def test_activations_by_name():
    assert layers.ACTIVATIONS.keys() <= ACTIVATIONS.keys()
    # Hand values: gelu(1) of the tanh form is 0.84119, of the erf form 0.84134.
    activations = layers.gelu(tf.constant([1.0, -1.0, 3.0]))
    expected = [0.84119199, -0.15880801, 2.99636261]
    np.testing.assert_allclose(activations, expected, atol=2e-7)
    np.testing.assert_allclose(layers.gelu_erf(tf.constant(1.0)), 0.84134475, atol=1e-7)

    assert layers.get_activation("GELU") is layers.gelu
    assert layers.get_activation(None) is None
    assert layers.get_activation("linear") is None
    assert layers.get_activation(len) is len
    with pytest.raises(InputError, match="no activation is called 'swish'; use one of gelu, "):
        layers.get_activation("swish")


def test_lora_adds_a_product_of_two_thin_matrices_and_trains_it_alone(tmp_path):
    features = {"input_ids": IDS}
    model = BertClassifier(CONFIG, 3)
    before = model(features).numpy()
    model.bert.trainable = False
    dense = model.bert.encoder.stack[0].intermediate.dense
    dense.trainable = True
    dense.enable_lora(2, lora_alpha=6)
    np.testing.assert_array_equal(model(features), before, "at first the product is 0")

    x = normal(5, CONFIG.hidden_size)
    lora_b = normal(2, CONFIG.intermediate_size)
    dense.lora_kernel_b.assign(lora_b)
    scale = 6 / 2
    kernel = dense._kernel.numpy() + scale * dense.lora_kernel_a.numpy() @ lora_b
    expected = tanh_gelu(x @ kernel + dense.bias.numpy())
    np.testing.assert_allclose(dense(x), expected, rtol=2e-5, atol=1e-5)
    after = model(features).numpy()
    assert np.abs(after - before).max() > 1e-3

    paths = [variable.path for variable in dense.trainable_variables]
    trained_names = [path.removeprefix("classifier/") for path in paths]
    assert trained_names == [
        f"{INTERMEDIATE}/bias",
        f"{INTERMEDIATE}/lora_kernel_a",
        f"{INTERMEDIATE}/lora_kernel_b",
    ]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(features) ** 2)
    gradient = tape.gradient(loss, dense.lora_kernel_b.value)
    assert np.abs(gradient).max() > 1e-4

    for layout in ("tf1", "huggingface"):
        folder = str(tmp_path / layout)
        model.save_pretrained(folder, layout)
        loaded = BertClassifier.from_pretrained(folder)
        np.testing.assert_allclose(loaded(features), model(features), atol=1e-6)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize:UserWarning")
def test_int8_multiplies_whole_numbers(tmp_path):
    model = BertModel(CONFIG)
    dense = model.encoder.stack[0].intermediate.dense
    # No value of this kernel is within 1e-4 of a rounding boundary.
    kernel = 0.1 * normal(*dense.kernel.shape)
    dense.kernel.assign(kernel)
    before = model(IDS).sequence_output.numpy()
    model.quantize("int8")

    x = normal(5, CONFIG.hidden_size)
    # The kernel has one scale for each output, the input one for each row.
    kernel_scale = 127 / np.abs(kernel).max(axis=0)
    x_scale = 127 / np.abs(x).max(axis=1, keepdims=True)
    int_kernel = np.round(kernel * kernel_scale).astype(int)
    int_x = np.round(x * x_scale).astype(int)
    product = int_x @ int_kernel / (x_scale * kernel_scale)
    expected = tanh_gelu(product + dense.bias.numpy())
    np.testing.assert_allclose(dense(x), expected, rtol=1e-4, atol=1e-5)
    assert dense.kernel.dtype == "int8"

    after = model(IDS).sequence_output.numpy()
    assert 1e-4 < np.abs(after - before).max() < 0.2
    folder = tmp_path / "new"
    message = "a quantized model has no weights .*; save it before quantize, or"
    with pytest.raises(InputError, match=message):
        model.save_pretrained(str(folder))
    assert not folder.exists()


def test_layer_norm_of_small_values():
    x = 1e-6 * normal(3, 8).astype(np.float64)
    mean = x.mean(1, keepdims=True)
    variance = x.var(1, keepdims=True)
    expected = (x - mean) / np.sqrt(variance + 1e-12)
    normalized = layers.layer_norm()(x.astype(np.float32))
    np.testing.assert_allclose(normalized, expected, rtol=1e-3)


# Two decisions share a random word. The last one of an odd count has a word alone.
@pytest.mark.parametrize("width", [64, 63])
def test_share_of_zeros_and_scale_of_the_rest(width):
    rate = 0.1
    x = tf.ones([3999, width])
    dropped = dropout(x, rate, SEED, index=3).numpy()
    assert set(np.unique(dropped)) == {np.float32(0), np.float32(1 / 0.9)}
    is_zero = dropped == 0
    deviation = np.sqrt(rate * (1 - rate) / dropped.size)
    assert abs(is_zero.mean() - rate) < 4 * deviation + 1e-5


def test_decisions_are_unrelated():
    """Masks of different seeds and places in the model are unrelated, and so are neighbours."""
    x = tf.ones([2000, 64])
    masks = []
    for seed in (SEED, tf.constant([5, 8]), tf.constant([6, 7])):
        for index in (0, 1):
            dropped = dropout(x, 0.5, seed, index).numpy()
            masks.append(dropped == 0)

    pairs = list(itertools.combinations(masks, 2))
    for shift in (1, 2):
        pairs.append((masks[0][:, shift:], masks[0][:, :-shift]))
    for first, second in pairs:
        share = (first == second).mean()
        deviation = 0.5 / np.sqrt(first.size)
        assert abs(share - 0.5) < 5 * deviation


def test_xla_draws_the_same_mask_and_a_gradient_passes_where_the_value_did():
    x = tf.Variable(tf.random.normal([50, 8]))
    with tf.GradientTape() as tape:
        y = dropout(x, 0.25, SEED, 1)
    gradient = tape.gradient(y, x)
    expected_gradient = np.where(y.numpy() != 0, 1 / 0.75, 0.0)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-6)

    compiled = tf.function(lambda: dropout(x, 0.25, SEED, 1), jit_compile=True)
    np.testing.assert_array_equal(compiled(), y)


def test_no_seed_or_no_rate_leaves_the_value():
    x = tf.ones([2, 2])
    without_seed = dropout(x, 0.5, None, 0)
    without_rate = dropout(x, 0.0, SEED, 0)
    assert without_seed is x
    assert without_rate is x


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_cross_entropy_and_its_gradient(scale):
    draws = np.random.default_rng(0)
    logits = (draws.normal(size=(7, 300)) * scale).astype(np.float32)
    labels = draws.integers(0, 300, 7).astype(np.int32)
    upstream = draws.normal(size=7).astype(np.float32)

    exact = logits.astype(np.float64)
    shifted = exact - exact.max(axis=1, keepdims=True)
    totals = np.exp(shifted).sum(axis=1, keepdims=True)
    log_probs = shifted - np.log(totals)
    one_hot = np.eye(300)[labels]
    expected_losses = -(log_probs * one_hot).sum(axis=1)
    expected_gradient = (np.exp(log_probs) - one_hot) * upstream[:, None]

    x = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(x)
        losses = cross_entropy(x, labels)
    gradient = tape.gradient(losses, x, output_gradients=upstream)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-6)


def test_a_certain_prediction_costs_nothing():
    logits = tf.constant([[0.0, 200.0]])
    labels = tf.constant([1])
    np.testing.assert_array_equal(cross_entropy(logits, labels), [0.0])
