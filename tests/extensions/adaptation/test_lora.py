"""Tests of LoRA in the encoder: 16-bit floats, and the file of the adapters."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertClassifier, BertConfig, BertModel, InputError
from official_bert.checkpoints import named_variables
from official_bert.extensions.adaptation.lora import enable_lora, write_adapters
from official_bert.training.precision import computing_in
from tests import toy
from tests.graphs import gradient_graph, products_of

CONFIG = BertConfig.from_dict(
    {
        **toy.BERT_CONFIG,
        "initializer_range": 0.3,
        "num_hidden_layers": 2,
    }
)
NUM_WORDS = len(toy.VOCABULARY)
GENERATOR = np.random.default_rng(1)
IDS = np.int32(GENERATOR.integers(5, NUM_WORDS, (3, 7)))


def list_adapters(model) -> dict:
    adapters = {}
    for name, variable in named_variables(model).items():
        if "lora_kernel_" in name:
            adapters[name] = variable
    return adapters


def fill(variable, value: float):
    """Assign the same value to all elements of a variable."""
    values = np.full(variable.shape, value)
    variable.assign(values)


def test_the_sum_is_in_32_bits_for_16_bit_products():
    """In bfloat16 a kernel of 1 would swallow what LoRA adds, 1/128, and then half of it again."""
    with computing_in("bfloat16"):
        model = BertModel(CONFIG)
        enable_lora(model, 1)
    dense = model.encoder.stack[0].intermediate.dense
    fill(dense._kernel, 1 + 3 / 1024)
    fill(dense.lora_kernel_a, 1.0)
    fill(dense.lora_kernel_b, 3 / 1024)
    fill(dense.bias, 0.0)
    dense.activation = None
    row = np.zeros((1, CONFIG.hidden_size), np.float32)
    row[0, 0] = 1.0
    output = np.asarray(dense(row), np.float32)
    # The sum, 1 + 6/1024, is rounded to 1 + 8/1024; each part alone is rounded to 1 or to 1 +
    # 3/1024.
    rounded_sum = 1 + 8 / 1024
    np.testing.assert_array_equal(output, rounded_sum)


@pytest.mark.parametrize("casts", [True, False])
def test_products_of_tokens_are_in_16_bits(monkeypatch, casts):
    """The products are in bfloat16 in both directions, as without LoRA.

    Keras before 3.15 does not cast the sum of the kernel.
    """
    with computing_in("bfloat16"):
        model = BertModel(CONFIG)
        enable_lora(model, 3)
    if not casts:
        get_kernel = keras.layers.Dense.kernel.fget

        @property
        def uncast_kernel(dense):
            kernel = get_kernel(dense)
            if dense.lora_enabled:
                return tf.cast(kernel, tf.float32)
            return kernel

        monkeypatch.setattr(keras.layers.Dense, "kernel", uncast_kernel)

    def sum_outputs(ids):
        outputs = model(ids).pooled_output
        return tf.reduce_sum(tf.cast(outputs, tf.float32))

    ids_spec = tf.TensorSpec(IDS.shape, tf.int32)
    graph = gradient_graph(model, sum_outputs, ids_spec)

    token_counts = {IDS.shape[1], IDS.size}
    num_token_products = 0
    dtypes = set()
    for product in products_of(graph.get_operations()):
        first, second = product.inputs
        (output,) = product.outputs
        sizes = {*first.shape, *second.shape, *output.shape}
        if "encoder" in product.name and token_counts & sizes:
            num_token_products += 1
            dtypes |= {first.dtype, second.dtype}
    assert num_token_products >= 3 * 6 * CONFIG.num_hidden_layers
    assert dtypes == {tf.bfloat16}


def test_the_file_gives_another_base_model_the_outputs(tmp_path):
    path = str(tmp_path / "adapters.safetensors")
    model = BertClassifier(CONFIG, 3)
    enable_lora(model, 2, first_layer=1)
    generator = np.random.default_rng(2)
    adapters = list_adapters(model)
    for variable in adapters.values():
        values = generator.normal(size=variable.shape)
        variable.assign(values * 0.1)
    head = {
        "output_weights": model.output_weights,
        "output_bias": model.output_bias,
    }
    write_adapters(path, adapters | head)

    base = BertClassifier(CONFIG, 3)
    weights = named_variables(model)
    for name, variable in named_variables(base).items():
        if name not in head:
            variable.assign(weights[name])
    expected = model({"input_ids": IDS})
    for _ in range(2):
        base.load_adapters(path)
        outputs = base({"input_ids": IDS})
        np.testing.assert_array_equal(outputs, expected)
    assert list_adapters(base).keys() == adapters.keys()

    encoder = BertModel(CONFIG)
    message = r"has output_bias, which the model lacks; load it into a model of the same"
    with pytest.raises(InputError, match=message):
        encoder.load_adapters(path)


def test_a_file_without_adapters_is_refused(tmp_path):
    path = str(tmp_path / "adapters.safetensors")
    model = BertClassifier(CONFIG, 3)
    write_adapters(path, {"output_bias": model.output_bias})
    with pytest.raises(InputError, match="has no adapters; name the file adapters"):
        model.load_adapters(path)
