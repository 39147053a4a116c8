"""Reads and writes a Dense of sentence-transformers: a layer behind the encoder of a model.

In: the folder of the module. Out: a `Dense`.
"""

from typing import Any, NamedTuple

import numpy as np

from official_bert.checkpoints import sentence_transformers
from official_bert.checkpoints.loading import open_checkpoint
from official_bert.io.errors import InputError

KERNEL, BIAS = "linear.weight", "linear.bias"
# The names of Keras by those of torch.
_ACTIVATIONS = {
    "Identity": "linear",
    "Tanh": "tanh",
    "ReLU": "relu",
    "GELU": "gelu",
    "Sigmoid": "sigmoid",
}


class Dense(NamedTuple):
    """A dense layer: activation(vectors @ kernel.T + bias).

    Attributes:
        kernel: float32[out, in].
        bias: float32[out].
        activation: the name of the activation in Keras.
    """

    kernel: np.ndarray
    bias: np.ndarray
    activation: str = "linear"


def read(folder: str) -> Dense:
    """Reads a Dense module.

    Args:
        folder: the folder of the module.

    Raises:
        InputError: a file is damaged, or the layer computes something else.
    """
    settings = sentence_transformers.read_settings(folder)
    class_path = str(settings.get("activation_function", ""))
    name = class_path.rpartition(".")[2]
    if not class_path.startswith("torch.nn.") or name not in _ACTIVATIONS:
        raise InputError(
            f"{folder}: the activation {class_path!r} of its config.json is not supported; only "
            f"{', '.join(_ACTIVATIONS)} of torch.nn are"
        )
    if settings.get("use_residual"):
        raise InputError(
            f"{folder}: adds its input to its output (use_residual), which is not supported"
        )
    weights = open_checkpoint(folder)
    if set(weights.shapes) not in ({KERNEL}, {KERNEL, BIAS}):
        raise InputError(f"{folder}: its weights are not those of a Dense; fetch them again")
    kernel = weights.read(KERNEL)
    bias = weights.read(BIAS) if BIAS in weights.shapes else np.zeros(len(kernel), np.float32)
    return Dense(kernel, bias, _ACTIVATIONS[name])


def write(folder: str, layer: Dense) -> None:
    """Writes a Dense module.

    Args:
        folder: the folder of the module, which is made if it is missing.
        layer: the layer.
    """
    name = next(name for name, value in _ACTIVATIONS.items() if value == layer.activation)
    module = "linear" if name == "Identity" else "activation"
    out_features, in_features = layer.kernel.shape
    config: dict[str, Any] = {
        "in_features": in_features,
        "out_features": out_features,
        "bias": True,
        "activation_function": f"torch.nn.modules.{module}.{name}",
    }
    sentence_transformers.write_weights(folder, {KERNEL: layer.kernel, BIAS: layer.bias})
    sentence_transformers.write_settings(folder, {sentence_transformers.MODULE_CONFIG_NAME: config})
