"""The activations, and Keras' own LoRA and int8 on the dense layers of our models, against numpy."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertClassifier, BertConfig, BertModel, InputError
from official_bert.config import ACTIVATIONS
from official_bert.modeling import layers
from tests import toy

CONFIG = BertConfig.from_dict(toy.BERT_CONFIG | {"initializer_range": 0.3})
IDS = np.random.default_rng(1).integers(5, len(toy.VOCABULARY), (3, 7)).astype(np.int32)
INTERMEDIATE = "bert/encoder/layer_0/intermediate/dense"


def normal(*shape) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


def tanh_gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def test_activations_by_name():
    assert layers.ACTIVATIONS.keys() == ACTIVATIONS.keys()
    # Hand values: gelu(1) of the tanh form is 0.84119, of the erf form 0.84134.
    np.testing.assert_allclose(
        layers.gelu(tf.constant([1.0, -1.0, 3.0])), [0.84119199, -0.15880801, 2.99636261], atol=2e-7
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
    np.testing.assert_allclose(dense(x), tanh_gelu(x @ kernel + dense.bias.numpy()), rtol=2e-5, atol=1e-5)
    assert np.abs(model({"input_ids": IDS}).numpy() - before).max() > 1e-3
    trained = [variable.path.removeprefix("classifier/") for variable in dense.trainable_variables]
    assert trained == [f"{INTERMEDIATE}/{name}" for name in ("bias", "lora_kernel_a", "lora_kernel_b")]
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
    before = model(IDS).sequence_output.numpy()
    dense = model.encoder.stack[0].intermediate.dense
    kernel = dense.kernel.numpy()
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
    with pytest.raises(InputError, match=r"a quantized model has no weights .*; save it before quantize, or"):
        model.save_pretrained(str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
