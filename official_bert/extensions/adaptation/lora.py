"""LoRA (Hu et al., 2021) in the encoder of a model: two thin matrices, adapters, beside the kernel
of a dense layer.

Adapters, and what else a training with them changes, are a small file that any model with the same
encoder can load.
"""

from collections.abc import Iterator, Mapping

import keras

from official_bert.checkpoints import huggingface, loading, named_variables, names, open_checkpoint
from official_bert.checkpoints.in_use import find_adapter_rank
from official_bert.io.errors import InputError
from official_bert.modeling.encoder import EncoderLayer
from official_bert.modeling.layers import Dense


def enable_lora(model: keras.Model, rank: int, first_layer: int = 0):
    """Adds adapters to the encoder layers from `first_layer` on; nothing else of the encoder
    stays trainable.
    """
    for name, variable in named_variables(model).items():
        if name.startswith("bert/"):
            variable.trainable = False
    for layer in model._flatten_layers():
        if (
            isinstance(layer, EncoderLayer)
            and int(layer.name.removeprefix("layer_")) >= first_layer
        ):
            for dense in _dense_layers(layer):
                dense.enable_lora(rank)


def write_adapters(path: str, trained: Mapping):
    """Writes the trained variables, by name, into a file of safetensors."""
    huggingface.write_tensors(path, {name: variable.numpy() for name, variable in trained.items()})


def load_adapters(model: keras.Model, path: str):
    """Adds the adapters in a file to a base model; see `methods.load_adapters`."""
    file = open_checkpoint(path)
    rank = find_adapter_rank(file.shapes)
    if rank is None:
        raise InputError(
            f"{path}: has no adapters; name the file adapters.safetensors of a training with "
            "--lora_rank"
        )
    kernels = {id(variable): name for name, variable in named_variables(model).items()}
    for dense in _dense_layers(model):
        if (
            not dense.lora_enabled
            and names.list_adapters(kernels[id(dense._kernel)])[0] in file.shapes
        ):
            dense.enable_lora(rank)
    variables = named_variables(model)
    if lacking := sorted(file.shapes.keys() - variables):
        raise InputError(
            f"{path}: has {lacking[0]}, which the model lacks; load it into a model of the same "
            "task"
        )
    loading.assign(file, {name: variables[name] for name in file.shapes})


def _dense_layers(layer: keras.layers.Layer) -> Iterator[Dense]:
    return (child for child in layer._flatten_layers() if isinstance(child, Dense))
