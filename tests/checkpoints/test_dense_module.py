"""A Dense of sentence-transformers is read, written, and refused if it computes something else."""

import json

import numpy as np
import pytest
import safetensors.numpy

from official_bert.checkpoints import dense_module
from official_bert.checkpoints.dense_module import Dense
from official_bert.io.errors import InputError


def make_layer(activation: str = "linear") -> Dense:
    generator = np.random.default_rng(5)
    kernel = generator.normal(size=(3, 4)).astype(np.float32)
    bias = generator.normal(size=3).astype(np.float32)
    return Dense(kernel, bias, activation)


@pytest.mark.parametrize(
    ("activation", "torch_name"),
    [
        ("linear", "torch.nn.modules.linear.Identity"),
        ("tanh", "torch.nn.modules.activation.Tanh"),
        ("gelu", "torch.nn.modules.activation.GELU"),
    ],
)
def test_a_layer_is_written_and_read(tmp_path, activation, torch_name):
    folder = str(tmp_path / "2_Dense")
    layer = make_layer(activation)
    # The weights may be a view with other strides.
    dense_module.write(folder, layer._replace(kernel=np.asfortranarray(layer.kernel)))
    restored = dense_module.read(folder)
    np.testing.assert_array_equal(restored.kernel, layer.kernel)
    np.testing.assert_array_equal(restored.bias, layer.bias)
    assert restored.activation == activation
    assert json.loads((tmp_path / "2_Dense/config.json").read_text()) == {
        "in_features": 4,
        "out_features": 3,
        "bias": True,
        "activation_function": torch_name,
    }


def test_a_class_may_have_its_short_name(tmp_path):
    dense_module.write(str(tmp_path), make_layer())
    path = tmp_path / "config.json"
    fields = {"activation_function": "torch.nn.Tanh"}
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    assert dense_module.read(str(tmp_path)).activation == "tanh"


def test_a_layer_without_a_bias_adds_zeros(tmp_path):
    layer = make_layer()
    dense_module.write(str(tmp_path), layer)
    weights = {"linear.weight": layer.kernel}
    safetensors.numpy.save_file(weights, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(dense_module.read(str(tmp_path)).bias, np.zeros(3))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"activation_function": "torch.nn.modules.activation.Mish"}, "activation.Mish' of its"),
        (
            {"activation_function": "my_package.Tanh"},
            "the activation 'my_package.Tanh' of its config.json is not",
        ),
        ({"use_residual": True}, "use_residual"),
    ],
)
def test_another_computation_is_refused(tmp_path, fields, message):
    dense_module.write(str(tmp_path), make_layer())
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    with pytest.raises(InputError, match=message):
        dense_module.read(str(tmp_path))


def test_other_weights_are_refused(tmp_path):
    dense_module.write(str(tmp_path), make_layer())
    weights = {"scale": np.ones(3, np.float32)}
    safetensors.numpy.save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="not those of a Dense"):
        dense_module.read(str(tmp_path))
