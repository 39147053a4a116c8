"""The activations, dropout and cross-entropy by numpy, and LoRA and int8 on the dense layers of
our models.
"""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from official_bert import BertClassifier, BertConfig, BertModel, InputError
from official_bert.config import ACTIVATIONS
from official_bert.modeling import layers
from official_bert.modeling.layers import dropout
from official_bert.modeling.losses import cross_entropy
from tests import toy
from tests.golden_model import largest_difference

FIELDS = toy.BERT_CONFIG | {"initializer_range": 0.3}
CONFIG = BertConfig.from_dict(FIELDS)
RNG = np.random.default_rng(1)
DRAWN_IDS = RNG.integers(
    low=5,
    high=len(toy.VOCABULARY),
    size=(3, 7),
)
IDS = DRAWN_IDS.astype(np.int32)
FEATURES = {"input_ids": IDS}
SEED = tf.constant([5, 7])
INTERMEDIATE = "bert/encoder/layer_0/intermediate/dense"


def normal(*shape) -> np.ndarray:
    rng = np.random.default_rng(3)
    draws = rng.normal(size=shape)
    return draws.astype(np.float32)


def tanh_gelu(x):
    cubic = x + 0.044715 * x**3
    scale = np.sqrt(2 / np.pi)
    share = 1 + np.tanh(scale * cubic)
    return 0.5 * x * share


def test_values_of_gelu():
    # Hand values: gelu(1) of the tanh form is 0.84119, of the erf form 0.84134.
    x = tf.constant([1.0, -1.0, 3.0])
    expected = [0.84119199, -0.15880801, 2.99636261]
    assert_allclose(
        layers.gelu(x),
        expected,
        atol=2e-7,
    )
    one = tf.constant(1.0)
    assert_allclose(
        layers.gelu_erf(one),
        0.84134475,
        atol=1e-7,
    )


def test_activations_by_name():
    assert layers.ACTIVATIONS.keys() <= ACTIVATIONS.keys()
    assert layers.get_activation("GELU") is layers.gelu
    assert layers.get_activation(None) is None
    assert layers.get_activation("linear") is None
    assert layers.get_activation(len) is len
    message = "no activation is called 'swish'; use one of gelu, "
    with pytest.raises(InputError, match=message):
        layers.get_activation("swish")


def test_lora_adds_a_product_of_two_thin_matrices_and_trains_it_alone(tmp_path):
    model = BertClassifier(CONFIG, 3)
    before = model(FEATURES).numpy()
    model.bert.trainable = False
    dense = model.bert.encoder.stack[0].intermediate.dense
    dense.trainable = True
    dense.enable_lora(2, lora_alpha=6)
    at_first = model(FEATURES)
    assert_array_equal(at_first, before, "at first the product is 0")

    lora_a = dense.lora_kernel_a.numpy()
    lora_b = normal(2, CONFIG.intermediate_size)
    dense.lora_kernel_b.assign(lora_b)
    scale = 6 / 2
    update = scale * lora_a @ lora_b
    kernel = dense._kernel.numpy() + update
    bias = dense.bias.numpy()
    x = normal(5, CONFIG.hidden_size)
    expected = tanh_gelu(x @ kernel + bias)
    assert_allclose(
        dense(x),
        expected,
        rtol=2e-5,
        atol=1e-5,
    )
    after = model(FEATURES).numpy()
    assert largest_difference(after, before) > 1e-3

    paths = [variable.path for variable in dense.trainable_variables]
    trained_names = [path.removeprefix("classifier/") for path in paths]
    assert trained_names == [
        f"{INTERMEDIATE}/bias",
        f"{INTERMEDIATE}/lora_kernel_a",
        f"{INTERMEDIATE}/lora_kernel_b",
    ]
    with tf.GradientTape() as tape:
        logits = model(FEATURES)
        loss = tf.reduce_sum(logits**2)
    gradient = tape.gradient(loss, dense.lora_kernel_b.value)
    assert np.abs(gradient).max() > 1e-4

    for layout in ("tf1", "huggingface"):
        folder = str(tmp_path / layout)
        model.save_pretrained(folder, layout)
        loaded = BertClassifier.from_pretrained(folder)
        assert_allclose(
            loaded(FEATURES),
            model(FEATURES),
            atol=1e-6,
        )


def round_to_int(values: np.ndarray) -> np.ndarray:
    rounded = np.round(values)
    return rounded.astype(int)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize:UserWarning")
def test_int8_multiplies_whole_numbers(tmp_path):
    model = BertModel(CONFIG)
    dense = model.encoder.stack[0].intermediate.dense
    # No value of this kernel is within 1e-4 of a rounding boundary.
    shape = dense.kernel.shape
    kernel = 0.1 * normal(*shape)
    dense.kernel.assign(kernel)
    before = model(IDS).sequence_output.numpy()
    model.quantize("int8")

    # The kernel has one scale for each output, the input one for each row.
    largest_weights = np.abs(kernel).max(axis=0)
    kernel_scale = 127 / largest_weights
    int_kernel = round_to_int(kernel * kernel_scale)
    x = normal(5, CONFIG.hidden_size)
    largest_inputs = np.abs(x).max(axis=1, keepdims=True)
    x_scale = 127 / largest_inputs
    int_x = round_to_int(x * x_scale)
    scale = x_scale * kernel_scale
    product = int_x @ int_kernel / scale
    bias = dense.bias.numpy()
    expected = tanh_gelu(product + bias)
    assert_allclose(
        dense(x),
        expected,
        rtol=1e-4,
        atol=1e-5,
    )
    assert dense.kernel.dtype == "int8"

    after = model(IDS).sequence_output.numpy()
    assert 1e-4 < largest_difference(after, before) < 0.2
    folder = tmp_path / "new"
    message = "a quantized model has no weights .*; save it before quantize, or"
    with pytest.raises(InputError, match=message):
        model.save_pretrained(str(folder))
    assert not folder.exists()


def test_layer_norm_of_small_values():
    small_values = 1e-6 * normal(3, 8)
    x = small_values.astype(np.float64)
    mean = x.mean(1, keepdims=True)
    variance = x.var(1, keepdims=True)
    deviation = np.sqrt(variance + 1e-12)
    expected = (x - mean) / deviation
    layer_norm = layers.layer_norm()
    normalized = layer_norm(small_values)
    assert_allclose(normalized, expected, rtol=1e-3)


def test_share_of_zeros_and_scale_of_the_rest():
    rate = 0.1
    x = tf.ones([3999, 63])
    dropped = dropout(x, rate, SEED, index=3).numpy()
    values = set(np.unique(dropped))
    zero = np.float32(0)
    scaled_one = np.float32(1 / 0.9)
    assert values == {zero, scaled_one}
    zero_share = np.mean(dropped == 0)
    standard_error = np.sqrt(rate * (1 - rate) / dropped.size)
    assert abs(zero_share - rate) < 4 * standard_error


def test_xla_draws_the_same_mask_and_a_gradient_passes_where_the_value_did():
    draws = tf.random.normal([50, 8])
    x = tf.Variable(draws)

    def drop():
        return dropout(x, 0.25, SEED, 1)

    with tf.GradientTape() as tape:
        y = drop()
    gradient = tape.gradient(y, x)
    is_kept = y.numpy() != 0
    expected_gradient = np.where(is_kept, 1 / 0.75, 0.0)
    assert_allclose(gradient, expected_gradient, rtol=1e-6)

    compiled = tf.function(drop, jit_compile=True)
    assert_array_equal(compiled(), y)


def test_no_seed_or_no_rate_leaves_the_value():
    x = tf.ones([2, 2])
    without_seed = dropout(x, 0.5, None, 0)
    without_rate = dropout(x, 0.0, SEED, 0)
    assert without_seed is x
    assert without_rate is x


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    totals = exponentials.sum(axis=1, keepdims=True)
    return shifted - np.log(totals)


@pytest.mark.parametrize(
    "scale",
    [
        pytest.param(1.0, id="small logits"),
        pytest.param(1e4, id="large logits"),
    ],
)
def test_cross_entropy_and_its_gradient(scale):
    rng = np.random.default_rng(0)
    logits = scale * rng.normal(size=(7, 300))
    logits = logits.astype(np.float32)
    labels = rng.integers(0, 300, 7)
    labels = labels.astype(np.int32)
    upstream = rng.normal(size=7)
    upstream = upstream.astype(np.float32)

    exact_logits = logits.astype(np.float64)
    log_probs = log_softmax(exact_logits)
    one_hot = np.eye(300)[labels]
    label_log_probs = (log_probs * one_hot).sum(axis=1)
    logit_gradient = np.exp(log_probs) - one_hot
    expected_gradient = logit_gradient * upstream[:, None]

    x = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(x)
        losses = cross_entropy(x, labels)
    gradient = tape.gradient(losses, x, output_gradients=upstream)
    assert_allclose(
        losses,
        -label_log_probs,
        rtol=1e-6,
        atol=1e-6,
    )
    assert_allclose(gradient, expected_gradient, atol=1e-6)


def test_a_certain_prediction_costs_nothing():
    logits = tf.constant([[0.0, 200.0]])
    labels = tf.constant([1])
    losses = cross_entropy(logits, labels)
    assert_array_equal(losses, [0.0])
