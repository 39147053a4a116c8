"""The activations, dropout and cross-entropy by numpy, and LoRA and int8 on the dense layers of
our models.
"""

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
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


def tanh_gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def test_activations_by_name():
    assert layers.ACTIVATIONS.keys() <= ACTIVATIONS.keys()
    # Hand values: gelu(1) of the tanh form is 0.84119, of the erf form 0.84134.
    np.testing.assert_allclose(
        layers.gelu(tf.constant([1.0, -1.0, 3.0])),
        [0.84119199, -0.15880801, 2.99636261],
        atol=2e-7,
    )
    np.testing.assert_allclose(layers.gelu_erf(tf.constant(1.0)), 0.84134475, atol=1e-7)
    assert layers.get_activation("GELU") is layers.gelu
    assert layers.get_activation(None) is layers.get_activation("linear") is None
    assert layers.get_activation(len) is len
    with pytest.raises(InputError, match="no activation is called 'swish'; use one of gelu, "):
        layers.get_activation("swish")


def test_lora_adds_a_product_of_two_thin_matrices_and_trains_it_alone(tmp_path):
    model = BertClassifier(CONFIG, 3)
    before = model({"input_ids": IDS}).numpy()
    model.bert.trainable = False
    dense = model.bert.encoder.stack[0].intermediate.dense
    dense.trainable = True
    dense.enable_lora(2, lora_alpha=6)
    np.testing.assert_array_equal(model({"input_ids": IDS}), before, "at first the product is 0")

    x, b = normal(5, CONFIG.hidden_size), normal(2, CONFIG.intermediate_size)
    dense.lora_kernel_b.assign(b)
    kernel = dense._kernel.numpy() + 6 / 2 * dense.lora_kernel_a.numpy() @ b
    np.testing.assert_allclose(
        dense(x),
        tanh_gelu(x @ kernel + dense.bias.numpy()),
        rtol=2e-5,
        atol=1e-5,
    )
    assert np.abs(model({"input_ids": IDS}).numpy() - before).max() > 1e-3
    trained = [variable.path.removeprefix("classifier/") for variable in dense.trainable_variables]
    assert trained == [
        f"{INTERMEDIATE}/{name}" for name in ("bias", "lora_kernel_a", "lora_kernel_b")
    ]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model({"input_ids": IDS}) ** 2)
    assert np.abs(tape.gradient(loss, dense.lora_kernel_b.value)).max() > 1e-4
    for form in ("tf1", "huggingface"):
        model.save_pretrained(str(tmp_path / form), form)
        again = BertClassifier.from_pretrained(str(tmp_path / form))
        np.testing.assert_allclose(again({"input_ids": IDS}), model({"input_ids": IDS}), atol=1e-6)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize:UserWarning")
def test_int8_multiplies_whole_numbers(tmp_path):
    model = BertModel(CONFIG)
    dense = model.encoder.stack[0].intermediate.dense
    kernel = 0.1 * normal(*dense.kernel.shape)  # none within 1e-4 of where rounding turns
    dense.kernel.assign(kernel)
    before = model(IDS).sequence_output.numpy()
    model.quantize("int8")

    x = normal(5, CONFIG.hidden_size)
    kernel_scale = 127 / np.abs(kernel).max(axis=0)  # of each output
    scale = 127 / np.abs(x).max(axis=1, keepdims=True)  # of each row
    product = np.round(x * scale).astype(int) @ np.round(kernel * kernel_scale).astype(int)
    expected = tanh_gelu(product / (scale * kernel_scale) + dense.bias.numpy())
    np.testing.assert_allclose(dense(x), expected, rtol=1e-4, atol=1e-5)
    assert dense.kernel.dtype == "int8"
    after = model(IDS).sequence_output.numpy()
    assert 1e-4 < np.abs(after - before).max() < 0.2
    with pytest.raises(
        InputError,
        match=r"a quantized model has no weights .*; save it before quantize, or",
    ):
        model.save_pretrained(str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_layer_norm_of_small_values():
    x = 1e-6 * normal(3, 8).astype(np.float64)
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-12)
    np.testing.assert_allclose(layers.layer_norm()(x.astype(np.float32)), expected, rtol=1e-3)


# Two decisions share a random word, the last of an odd count has one alone.
@pytest.mark.parametrize("width", [64, 63])
def test_share_of_zeros_and_scale_of_the_rest(width):
    x = tf.ones([3999, width])
    dropped = dropout(x, 0.1, SEED, index=3).numpy()
    assert set(np.unique(dropped)) == {np.float32(0), np.float32(1 / 0.9)}
    deviation = np.sqrt(0.1 * 0.9 / dropped.size)
    assert abs((dropped == 0).mean() - 0.1) < 4 * deviation + 1e-5


def test_decisions_are_unrelated():
    """Those of other seeds and places in the model, and those beside one another."""
    x = tf.ones([2000, 64])
    masks = [
        dropout(x, 0.5, seed, index).numpy() == 0
        for seed in (SEED, tf.constant([5, 8]), tf.constant([6, 7]))
        for index in (0, 1)
    ]
    pairs = [(masks[a], masks[b]) for a in range(len(masks)) for b in range(a)]
    pairs += [(masks[0][:, shift:], masks[0][:, :-shift]) for shift in (1, 2)]
    for first, second in pairs:
        assert abs((first == second).mean() - 0.5) < 5 * 0.5 / np.sqrt(first.size)


def test_xla_draws_the_same_mask_and_a_gradient_passes_where_the_value_did():
    x = tf.Variable(tf.random.normal([50, 8]))
    with tf.GradientTape() as tape:
        y = dropout(x, 0.25, SEED, 1)
    kept = y.numpy() != 0
    np.testing.assert_allclose(tape.gradient(y, x), np.where(kept, 1 / 0.75, 0.0), rtol=1e-6)
    compiled = tf.function(lambda: dropout(x, 0.25, SEED, 1), jit_compile=True)
    np.testing.assert_array_equal(compiled(), y)


def test_no_seed_or_no_rate_leaves_the_value():
    x = tf.ones([2, 2])
    assert dropout(x, 0.5, None, 0) is x
    assert dropout(x, 0.0, SEED, 0) is x


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_values_and_gradient(scale):
    random = np.random.default_rng(0)
    logits = (random.normal(size=(7, 300)) * scale).astype(np.float32)
    labels = random.integers(0, 300, 7).astype(np.int32)
    upstream = random.normal(size=7).astype(np.float32)

    exact = logits.astype(np.float64)
    shifted = exact - exact.max(axis=1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    one_hot = np.eye(300)[labels]

    x = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(x)
        losses = cross_entropy(x, labels)
    np.testing.assert_allclose(losses, -(log_probs * one_hot).sum(axis=1), rtol=1e-6, atol=1e-6)
    expected = (np.exp(log_probs) - one_hot) * upstream[:, None]
    np.testing.assert_allclose(
        tape.gradient(losses, x, output_gradients=upstream),
        expected,
        atol=1e-6,
    )


def test_a_certain_prediction_costs_nothing():
    np.testing.assert_array_equal(
        cross_entropy(tf.constant([[0.0, 200.0]]), tf.constant([1])),
        [0.0],
    )
