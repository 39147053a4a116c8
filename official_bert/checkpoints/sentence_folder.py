"""What a folder says of the way from a text to its vector: modules.json of sentence-transformers, or our task.json.

In: the folder of a model. Out: SentenceModules; `write` writes them as sentence-transformers reads them.
"""

import json
import os
from typing import Any, NamedTuple, Self

import numpy as np

from official_bert import __version__
from official_bert.checkpoints import huggingface
from official_bert.checkpoints.loading import open_checkpoint
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.reading import as_object, field, is_of_kind
from official_bert.model_dir import ModelFolder
from official_bert.options.serving import EMBEDDING, POOLINGS
from official_bert.tokenizer_config import TokenizerConfig

MODULES_NAME = "modules.json"
NORMALIZE = "Normalize"
PROJECTION = ("projection/kernel", "projection/bias")  # of a trained model: float32[in, out], float32[out]
# Our names by sentence-transformers': the longer ones are those of its older files.
_POOLINGS = {"mean_tokens": "mean", "cls_token": "cls", "max_tokens": "max", "mean_sqrt_len_tokens": "mean_sqrt_len"}
_ACTIVATIONS = {"Identity": "linear", "Tanh": "tanh", "ReLU": "relu", "GELU": "gelu", "Sigmoid": "sigmoid"}  # of torch


class Dense(NamedTuple):
    """A dense layer behind the pooling: the `activation`, by its name in Keras, of vectors @ kernel.T + bias."""

    kernel: np.ndarray  # float32[out, in]
    bias: np.ndarray  # float32[out]
    activation: str = "linear"


class SentenceModules(NamedTuple):
    """The way from a text to its vector; the defaults are a plain folder's."""

    encoder: str  # its folder
    layers: tuple[Dense | str, ...] = (NORMALIZE,)  # behind the pooling
    pooling: str = "mean"
    max_seq_length: int | None = None
    lowers: bool = False  # whether a text is lower-cased before the tokenizer reads it

    @classmethod
    def of(cls, folder: str) -> Self:
        """Returns what modules.json says, else the record of a training, else the defaults."""
        if (found := cls.read(folder)) is not None:
            return found
        record = ModelFolder(folder).task()
        return cls._of_training(folder, record.settings) if record and record.family == EMBEDDING else cls(folder)

    @classmethod
    def read(cls, folder: str) -> Self | None:
        """Reads modules.json and the modules that it names; None if there is no such file."""
        path = os.path.join(folder, MODULES_NAME)
        if not files.exists(path):
            return None
        listed = reading.read_json(path)
        listed = listed if isinstance(listed, list) else [listed]
        kinds = [field(one, "type", str, path) for one in listed]
        kinds = [kind.rpartition(".")[2] if kind.startswith("sentence_transformers.") else kind for kind in kinds]
        if kinds[:2] != ["Transformer", "Pooling"] or not {"Dense", NORMALIZE}.issuperset(kinds[2:]):
            known = "Transformer, Pooling, then Dense and Normalize"
            raise InputError(f"{path}: lists the modules {', '.join(kinds)}; only {known} can be used")
        encoder, pooling, *others = (os.path.join(folder, field(one, "path", str, path)) for one in listed)
        prompt = _settings(folder, "config_sentence_transformers.json").get("default_prompt_name")
        if prompt is not None:
            raise InputError(f"{folder}: puts the prompt {prompt!r} before each text, which is not supported")
        own = _settings(encoder, "sentence_bert_config.json")
        length = own.get("max_seq_length") or getattr(TokenizerConfig.read(encoder), "model_max_length", None)
        layers = (kind if kind == NORMALIZE else _dense(path) for kind, path in zip(kinds[2:], others, strict=True))
        found = cls(encoder, tuple(layers), _pooling_of(pooling), length, own.get("do_lower_case") is True)
        return found._checked(encoder)

    @classmethod
    def _of_training(cls, folder: str, settings: dict[str, Any]) -> Self:
        """Returns what a training has recorded."""
        layers = (NORMALIZE,) if settings.get("normalize", True) else ()
        if settings.get("projection"):
            kernel, bias = map(open_checkpoint(folder).read, PROJECTION)
            layers = (Dense(kernel.T, bias), *layers)
        return cls(folder, layers, settings.get("pooling", "mean"), settings.get("max_seq_length"))._checked(folder)

    def lowers_beside(self, tokenizer: TokenizerConfig | None) -> bool:
        """Tells whether texts are lower-cased before a cased tokenizer, as only SentenceEncoder does it."""
        return bool(self.lowers and tokenizer and tokenizer.do_lower_case is False)

    def _checked(self, where: str) -> Self:
        length = self.max_seq_length
        if length is not None and (not is_of_kind(length, int) or length < 1):
            raise InputError(f"{where}: its max_seq_length is {length!r}; write a positive whole number")
        return self


def write(folder: str, modules: SentenceModules, hidden_size: int):
    """Writes modules.json and what it names into the folder of the encoder, whose own files are not written here."""
    kinds = ["Transformer", "Pooling", *("Dense" if isinstance(one, Dense) else one for one in modules.layers)]
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds[1:], 1))]
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(zip(paths, kinds, strict=True))
    ]
    modes = {f"pooling_mode_{theirs}": ours == modules.pooling for theirs, ours in _POOLINGS.items()}
    contents = {
        MODULES_NAME: listed,
        "sentence_bert_config.json": {"max_seq_length": modules.max_seq_length, "do_lower_case": modules.lowers},
        "config_sentence_transformers.json": {
            "__version__": {"official_bert": __version__},
            "similarity_fn_name": "cosine",
        },
        f"{paths[1]}/config.json": {"word_embedding_dimension": hidden_size, **modes},
    }
    for path, layer in zip(paths[2:], modules.layers, strict=True):
        files.make_folder(os.path.join(folder, path))
        if isinstance(layer, Dense):
            name = next(name for name, activation in _ACTIVATIONS.items() if activation == layer.activation)
            place = "linear" if name == "Identity" else "activation"
            width, sizes = len(layer.kernel), {"in_features": layer.kernel.shape[1]}
            sizes |= {"out_features": width, "bias": True, "activation_function": f"torch.nn.modules.{place}.{name}"}
            contents[f"{path}/config.json"] = sizes
            weights = {"linear.weight": np.ascontiguousarray(layer.kernel), "linear.bias": layer.bias}
            huggingface.write_tensors(os.path.join(folder, path, huggingface.WEIGHTS_FILE), weights)
    files.make_folder(os.path.join(folder, paths[1]))
    for name, content in contents.items():
        with writing.replacing(os.path.join(folder, name)) as file:
            file.write(json.dumps(content, indent=2) + "\n")


def _settings(folder: str, name: str = "config.json") -> dict[str, Any]:
    """Returns the content of a module's file, empty if there is none."""
    path = os.path.join(folder, name)
    return as_object(reading.read_json(path), path) if files.exists(path) else {}


def _pooling_of(folder: str) -> str:
    """Returns the one pooling of a Pooling module; newer files name it, older ones have a truth value for each."""
    settings = _settings(folder)
    named = settings.get("pooling_mode", [])
    modes = [named] if isinstance(named, str) else list(named)
    modes += [name.removeprefix("pooling_mode_") for name, is_on in settings.items() if "_mode_" in name and is_on]
    found = {_POOLINGS.get(mode, mode) for mode in modes}
    if len(found) != 1 or not found <= set(POOLINGS):
        said = " with ".join(sorted(map(str, found))) or "not named"
        raise InputError(f"{folder}: the pooling is {said}; only one of {', '.join(POOLINGS)} can be used")
    return found.pop()


def _dense(folder: str) -> Dense:
    """Reads a Dense module."""
    settings = _settings(folder)
    module, _, name = str(settings.get("activation_function", "")).rpartition(".")
    if not module.startswith("torch.nn.") or name not in _ACTIVATIONS:
        raise InputError(f"{folder}: the activation {name!r} is not one of {', '.join(_ACTIVATIONS)} of torch")
    if settings.get("use_residual"):
        raise InputError(f"{folder}: adds its input to its output (use_residual), which is not supported")
    weights = open_checkpoint(folder)
    if set(weights.shapes) not in ({"linear.weight"}, {"linear.weight", "linear.bias"}):
        raise InputError(f"{folder}: its weights are not those of a Dense; fetch them again")
    kernel = weights.read("linear.weight")
    bias = weights.read("linear.bias") if len(weights.shapes) == 2 else np.zeros(len(kernel), np.float32)
    return Dense(kernel, bias, _ACTIVATIONS[name])
