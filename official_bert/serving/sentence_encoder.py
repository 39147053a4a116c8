"""Vectors of texts and sentences from an encoder, for search and for comparison by cosine.

In: the folder of a model, plain or of sentence-transformers, whose modules are read. Out: float32[texts, width].
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from official_bert import model_hub
from official_bert.checkpoints import open_checkpoint
from official_bert.features import ENCODER_INPUTS
from official_bert.io import files, reading
from official_bert.io.errors import InputError
from official_bert.io.reading import as_object, field, is_of_kind
from official_bert.modeling import BertModel
from official_bert.modeling.heads import POOLINGS, normalized, pooled
from official_bert.serving.vector_search import TextComparisons
from official_bert.tokenization import FullTokenizer
from official_bert.tokenizer_call import listed_texts
from official_bert.tokenizer_config import TokenizerConfig

_POOLINGS = {"mean_tokens": "mean", "cls_token": "cls", "max_tokens": "max"}  # by sentence-transformers' names
_ACTIVATIONS = {"Identity": "linear", "Tanh": "tanh", "ReLU": "relu", "GELU": "gelu", "Sigmoid": "sigmoid"}  # of torch
_NORMALIZE, DENSE = "Normalize", "Dense"
MODULES_NAME = "modules.json"
Vectors = Callable[[tf.Tensor], tf.Tensor]


class SentenceModules(NamedTuple):
    """What a folder of sentence-transformers says of the way from text to vector; the defaults are a plain folder's."""

    encoder: str  # its folder
    layers: tuple[tuple[str, str], ...] = ((_NORMALIZE, ""),)  # type and folder of each module behind the pooling
    pooling: str = "mean"
    max_seq_length: int | None = None
    lowers: bool = False  # whether a text is lower-cased before the tokenizer reads it

    @classmethod
    def read(cls, folder: str) -> SentenceModules:
        """Reads modules.json and the modules that it names."""
        path = os.path.join(folder, MODULES_NAME)
        if not files.exists(path):
            return cls(folder)
        listed = reading.read_json(path)
        listed = listed if isinstance(listed, list) else [listed]
        kinds = [field(one, "type", str, path) for one in listed]
        kinds = [kind.rpartition(".")[2] if kind.startswith("sentence_transformers.") else kind for kind in kinds]
        if kinds[:2] != ["Transformer", "Pooling"] or not {DENSE, _NORMALIZE}.issuperset(kinds[2:]):
            known = "Transformer, Pooling, then Dense and Normalize"
            raise InputError(f"{path}: lists the modules {', '.join(kinds)}; only {known} can be used")
        encoder, pooling, *others = (os.path.join(folder, field(one, "path", str, path)) for one in listed)
        prompt = _settings(folder, "config_sentence_transformers.json").get("default_prompt_name")
        if prompt is not None:
            raise InputError(f"{folder}: puts the prompt {prompt!r} before each text, which is not supported")
        own = _settings(encoder, "sentence_bert_config.json")
        length = own.get("max_seq_length") or getattr(TokenizerConfig.read(encoder), "model_max_length", None)
        if length is not None and (not is_of_kind(length, int) or length < 1):
            raise InputError(f"{encoder}: its max_seq_length is {length!r}; write a positive whole number")
        layers = tuple(zip(kinds[2:], others, strict=True))
        return cls(encoder, layers, _pooling_of(pooling), length, own.get("do_lower_case") is True)


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
    if len(found) != 1 or not found <= POOLINGS.keys():
        said = " with ".join(sorted(map(str, found))) or "not named"
        raise InputError(f"{folder}: the pooling is {said}; only one of {', '.join(POOLINGS)} can be used")
    return found.pop()


def _layers_of(found: SentenceModules, normalize: bool | None) -> list[Vectors]:
    """Returns the functions behind the pooling."""
    kept = ((kind, folder) for kind, folder in found.layers if kind == DENSE or normalize is not False)
    layers = [_dense(folder) if kind == DENSE else normalized for kind, folder in kept]
    if layers[-1:] != [normalized]:
        if normalize:
            layers.append(normalized)
        elif normalize is None:
            logging.warning("%s: its vectors are not of norm 1; give normalize=True for cosines", found.encoder)
    return layers


def _dense(folder: str) -> Vectors:
    """Returns the function of a Dense module."""
    module, _, name = str(_settings(folder).get("activation_function", "")).rpartition(".")
    if not module.startswith("torch.nn.") or name not in _ACTIVATIONS:
        raise InputError(f"{folder}: the activation {name!r} is not one of {', '.join(_ACTIVATIONS)} of torch")
    weights, activate = open_checkpoint(folder), keras.activations.get(_ACTIVATIONS[name])
    if set(weights.shapes) not in ({"linear.weight"}, {"linear.weight", "linear.bias"}):
        raise InputError(f"{folder}: its weights are not those of a Dense; fetch them again")
    kernel, bias = weights.read("linear.weight"), weights.read("linear.bias") if len(weights.shapes) == 2 else 0.0
    return lambda vectors: activate(tf.matmul(vectors, kernel, transpose_b=True) + bias)


class SentenceEncoder(TextComparisons):
    """Encodes texts with the last layer of an encoder, as Reimers and Gurevych (2019) do.

        encoder = SentenceEncoder(folder)
        first, second = encoder.encode(["A train left.", "The train has left."])
        first @ second  # the cosine of their angle
        encoder.search("When did it leave?", ["A train left.", "It rained."], k=1)  # [{"text": ..., "row": ..., ...}]

    Its attributes are `model`, `tokenizer` and `max_seq_length`.
    """

    def __init__(
        self,
        folder: str,
        pooling: Literal["mean", "cls", "max"] | None = None,
        normalize: bool | None = None,
        max_seq_length: int | None = None,
    ):
        """Loads the model and its vocabulary; what an argument leaves open, a folder of sentence-transformers says.

        Args:
            folder: the folder of a model, or its name, as for `BertModel.from_pretrained`, with vocab.txt and, for a
                cased model, tokenizer_config.json; or one of sentence-transformers, with modules.json.
            pooling: "mean" of the tokens' vectors, special ones included; the vector of [CLS] ("cls"); or the "max" of
                each coordinate. It should be that with which the model was trained; "mean" if nothing says it.
            normalize: whether the vectors are divided by their norms; True if nothing says it.
            max_seq_length: the tokens to which texts are truncated; the longest sequence of the model if nothing says
                it.
        """
        if pooling not in (None, *POOLINGS):
            raise InputError(f"pooling={pooling!r}: must be one of {', '.join(POOLINGS)}")
        found = SentenceModules.read(model_hub.local_path(folder))
        self.model = BertModel.from_pretrained(found.encoder)
        self.tokenizer = FullTokenizer.from_pretrained(found.encoder)
        longest = self.model.config.max_position_embeddings
        said = min(found.max_seq_length or longest, longest)
        self.max_seq_length = said if max_seq_length is None else max_seq_length
        if self.max_seq_length > longest:
            raise InputError(
                f"max_seq_length={max_seq_length}: the model was made for sequences up to {longest} tokens"
            )
        self._pooling, self._lowers = pooling or found.pooling, found.lowers
        self._layers = _layers_of(found, normalize)
        # One trace for all shapes.
        signature = {name: tf.TensorSpec([None, None], tf.int32) for name in ENCODER_INPUTS}
        self._encode = tf.function(self._vectors, input_signature=[signature])

    def encode(self, texts: str | Iterable[str], batch_size: int = 32) -> np.ndarray:
        """Returns the vectors of texts in their order, float32[n, width]; a single text is a list of one.

        The texts are encoded in batches of like length, whose size does not change the vectors.
        """
        if not is_of_kind(batch_size, int) or batch_size < 1:
            raise InputError(f"batch_size={batch_size!r}: must be a positive whole number")
        texts = listed_texts("texts", texts)
        if self._lowers:
            texts = [text.lower() for text in texts]
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))  # characters tell enough about tokens
        width = self._encode.get_concrete_function().structured_outputs.shape[-1]
        vectors = np.empty((len(texts), width), np.float32)
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            batch = [texts[row] for row in rows]
            vectors[rows] = self._encode(self.tokenizer(batch, max_seq_length=self.max_seq_length))
        return vectors

    def _vectors(self, batch: dict) -> tf.Tensor:
        """Returns float32[B, width] for features int32[B, S]."""
        inputs = (batch[name] for name in ENCODER_INPUTS)
        out = self.model(*inputs, first_token_only=self._pooling == "cls")
        vectors = pooled(self._pooling, out.sequence_output, batch["input_mask"])
        for layer in self._layers:
            vectors = layer(vectors)
        return vectors
