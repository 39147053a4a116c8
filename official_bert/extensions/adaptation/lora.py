"""LoRA (Hu et al., 2021) in the encoder of a model: adapters, two thin matrices for each kernel.

The adapters and the other weights that such a training changes are a small file. Any model with
the same encoder can load it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import keras

from official_bert.checkpoints import huggingface, loading, named_variables, names, open_checkpoint
from official_bert.checkpoints.weights_in_use import find_adapter_rank
from official_bert.io.errors import InputError
from official_bert.modeling.encoder import EncoderLayer
from official_bert.modeling.layers import Dense


def enable_lora(model: keras.Model, rank: int, first_layer: int = 0) -> None:
    """Add adapters to the encoder of a model, and freeze all its other weights.

    Args:
        model: the model.
        rank: the rank of the adapters.
        first_layer: the lowest layer with adapters, from 0.
    """
    for name, variable in named_variables(model).items():
        if name.startswith("bert/"):
            variable.trainable = False
    for layer in model._flatten_layers():
        if not isinstance(layer, EncoderLayer):
            continue
        number = int(layer.name.removeprefix("layer_"))
        if number >= first_layer:
            for dense in _dense_layers(layer):
                dense.enable_lora(rank)


def write_adapters(path: str, trained: Mapping[str, Any]) -> None:
    """Write the trained variables into a file of safetensors.

    Args:
        path: the file.
        trained: the variables by name.
    """
    huggingface.write_tensors(path, {name: variable.numpy() for name, variable in trained.items()})


def load_adapters(model: keras.Model, path: str) -> None:
    """Add the adapters of a file to a base model; see `methods.load_adapters`.

    Args:
        model: the model.
        path: the file adapters.safetensors of a training.

    Raises:
        InputError: the file has no adapters, or the model is of another task or size.
    """
    file = open_checkpoint(path)
    rank = find_adapter_rank(file.shapes)
    if rank is None:
        raise InputError(
            f"{path}: has no adapters; name the file adapters.safetensors of a training with "
            "--lora_rank"
        )
    kernel_names = {id(variable): name for name, variable in named_variables(model).items()}
    for dense in _dense_layers(model):
        if dense.lora_enabled:
            continue
        adapter_names = names.list_adapters(kernel_names[id(dense._kernel)])
        if adapter_names[0] in file.shapes:
            dense.enable_lora(rank)
    variables = named_variables(model)
    lacking = sorted(file.shapes.keys() - variables)
    if lacking:
        raise InputError(
            f"{path}: has {lacking[0]}, which the model lacks; load it into a model of the same "
            "task"
        )
    loading.assign(file, {name: variables[name] for name in file.shapes})


def _dense_layers(layer: keras.layers.Layer) -> Iterator[Dense]:
    return (child for child in layer._flatten_layers() if isinstance(child, Dense))
