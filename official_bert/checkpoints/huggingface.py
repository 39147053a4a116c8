"""Reads and writes Hugging Face folders: config.json and model.safetensors, whole or in shards."""

import json
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from official_bert.checkpoints import names
from official_bert.config import BertConfig
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.reading import field
from official_bert.options.serving import MODEL_CLASSES

WEIGHTS_FILE = "model.safetensors"
SHARDS_FILE = "model.safetensors.index.json"
PICKLED_FILES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
CONFIG_FILE = "config.json"
LINEAR_HEAD = "output_weights"
SEQUENCE_CLASSIFICATION = MODEL_CLASSES["classification"]
# What BertForPreTraining has, by prefixes of TF1 names, and a class of transformers with its masked
# LM head has not.
_ABSENT_IN = {"BertForMaskedLM": ("bert/pooler/", "cls/seq_relationship/")}
_FLOATS = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}


class HuggingFaceCheckpoint:
    """Weights of a Hugging Face model, under their TF1 names and in TF1's layout; attributes as of
    Tf1Checkpoint.

    A tensor whose name the table of names lacks keeps its own name, and a type that is no float
    keeps the format's.
    """

    def __init__(self, path: str):
        """Opens the weights of a folder, or a model.safetensors file."""
        self.path = path
        self._tensors = {}  # Hugging Face name -> open file
        for file, listed in _weight_files(path).items():
            try:
                opened = safetensors.safe_open(files.check_model_file(file), framework="numpy")
            except (safetensors.SafetensorError, OSError) as error:
                raise InputError(
                    f"{file}: cannot be read as safetensors ({error}); fetch the file again"
                ) from None
            stored = opened.keys()
            if absent := set(listed or ()).difference(stored):
                raise InputError(
                    f"{file}: lacks {min(absent)}, which {SHARDS_FILE} says is there; fetch both "
                    "again"
                )
            self._tensors |= dict.fromkeys(listed or stored, opened)

        self._entries = {}
        for name in self._tensors:
            if not names.is_redundant(name):
                entry = names.from_huggingface(name) or names.Entry(name, name)
                if entry.tf1 in self._entries:
                    self._check_same(self._entries[entry.tf1].huggingface, name)
                self._entries[entry.tf1] = entry._replace(huggingface=name)
        self.dtypes = {name: self._dtype(entry) for name, entry in self._entries.items()}
        self._check_tied()
        self.shapes = {name: self._shape(self._entries[name]) for name in sorted(self._entries)}

    def read(self, name: str) -> np.ndarray:
        """Returns the tensor with this TF1 name; 16-bit floats become float32."""
        entry = self._entries[name]
        tensor = self._tensor(entry.huggingface)
        return np.ascontiguousarray(tensor.T) if entry.transposed else tensor

    @property
    def absent_in_class(self) -> tuple[str, ...]:
        """The prefixes of weights that the class of the model has not, if config.json names its
        class.
        """
        folder = os.path.dirname(self.path) if is_weights_file(self.path) else self.path
        path = os.path.join(folder, CONFIG_FILE)
        named = (
            reading.as_object(reading.read_json(path), path).get("architectures")
            if files.exists(path)
            else None
        )
        return (
            _ABSENT_IN.get(str(named[0]), ()) if isinstance(named, list) and len(named) == 1 else ()
        )

    def stored(self, changed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns all tensors by their own names in their own types; those that changed, by TF1
        name, have copies.
        """
        new = {self._entries[name].huggingface: value for name, value in changed.items()}
        new |= {names.COPIES[name]: value for name, value in changed.items()}
        tensors = {name: file.get_tensor(name) for name, file in self._tensors.items()}
        return tensors | {
            name: value.astype(tensors[name].dtype)
            for name, value in new.items()
            if name in tensors
        }

    def _tensor(self, name: str) -> np.ndarray:
        tensor = self._tensors[name].get_tensor(name)
        is_short_float = tensor.dtype.itemsize == 2 and tensor.dtype.kind not in "iu"
        return tensor.astype(np.float32) if is_short_float else tensor

    def _dtype(self, entry: names.Entry) -> str:
        stored = self._tensors[entry.huggingface].get_slice(entry.huggingface).get_dtype()
        return _FLOATS.get(stored, stored)

    def _shape(self, entry: names.Entry) -> tuple[int, ...]:
        shape = tuple(self._tensors[entry.huggingface].get_slice(entry.huggingface).get_shape())
        return shape[::-1] if entry.transposed else shape

    def _check_tied(self):
        for tf1_name, copy in names.COPIES.items():
            entry = self._entries.get(tf1_name)
            # Types that numpy lacks are refused where the weights are read.
            if (
                not entry
                or copy not in self._tensors
                or self.dtypes[tf1_name] not in _FLOATS.values()
            ):
                continue
            if not np.array_equal(self._tensor(copy), self._tensor(entry.huggingface)):
                shared = "the word embeddings" if copy == names.TIED_TABLE else "this bias"
                raise InputError(
                    f"{self.path}: {copy} differs from {entry.huggingface}; only models that share "
                    f"{shared} with the output layer can be loaded"
                )

    def _check_same(self, name: str, other: str):
        """Refuses a weight that is there under two names with different values."""
        if not np.array_equal(self._tensor(name), self._tensor(other)):
            raise InputError(
                f"{self.path}: {name} and {other} name the same weight and differ; remove the one "
                "that is not of this model"
            )


def is_weights_file(path: str) -> bool:
    """Tells whether a path names a file of weights in one of Hugging Face's formats."""
    return path.endswith((".safetensors", *PICKLED_FILES))


def is_huggingface(path: str) -> bool:
    """Tells whether a path is a folder with weights in one of Hugging Face's formats, or a
    safetensors file.
    """
    candidates = (WEIGHTS_FILE, SHARDS_FILE, *PICKLED_FILES)
    return is_weights_file(path) or any(
        files.exists(os.path.join(path, name)) for name in candidates
    )


def write(
    folder: str,
    tensors: dict[str, np.ndarray],
    config: BertConfig,
    linear_class: str = SEQUENCE_CLASSIFICATION,
    labels: Sequence[str] | None = None,
    further_fields: Mapping[str, Any] = MappingProxyType({}),
):
    """Writes config.json and model.safetensors of tensors by TF1 name, each of which the table of
    names must have.

    `linear_class` is the class of a model with the head `output_weights`, whose shape is the same
    for texts, tokens and choices; the labels are in the order of its outputs. config.json gets the
    `further_fields`.
    """
    entries = [names.to_huggingface(name) for name in tensors]
    heads = [entry.tf1 for entry in entries if not entry.tf1.startswith("bert/")]
    # Without a head the weights are those of transformers' BertModel, whose names have no prefix.
    prefix = "" if heads else "bert."
    renamed = {}
    for entry in entries:
        tensor = np.asarray(tensors[entry.tf1])
        tensor = tensor.T if entry.transposed else tensor
        renamed[entry.huggingface.removeprefix(prefix)] = np.ascontiguousarray(tensor)

    architecture = _architecture(heads, linear_class)
    fields = config.to_huggingface_dict() | dict(further_fields) | {"architectures": [architecture]}
    if architecture in (SEQUENCE_CLASSIFICATION, MODEL_CLASSES["tagging"]):
        num_outputs = len(tensors["output_bias"])
        if labels is None or len(labels) != num_outputs:
            labels = [f"LABEL_{i}" for i in range(num_outputs)]
        fields["id2label"] = {str(i): label for i, label in enumerate(labels)}
        fields["label2id"] = {label: i for i, label in enumerate(labels)}
    with writing.replacing(os.path.join(folder, CONFIG_FILE)) as file:
        file.write(json.dumps(fields, indent=2, sort_keys=True) + "\n")
    write_tensors(os.path.join(folder, WEIGHTS_FILE), renamed)


def write_tensors(path: str, tensors: dict[str, np.ndarray]):
    """Writes a safetensors file."""
    with writing.replacing(path, "wb") as file:
        file.write(safetensors.numpy.save(tensors, metadata={"format": "pt"}))


def _architecture(heads: list[str], linear_class: str) -> str:
    """Returns the name of the transformers class that has these heads."""
    if "cls/seq_relationship/output_weights" in heads:
        return "BertForPreTraining"
    if "cls/predictions/output_bias" in heads:
        return "BertForMaskedLM"
    if "cls/squad/output_weights" in heads:
        return "BertForQuestionAnswering"
    return linear_class if LINEAR_HEAD in heads else "BertModel"


def _weight_files(path: str) -> dict[str, list[str]]:
    """Returns the files of weights with the names of the tensors that each is read for; no names
    for all that it has.

    A shard may have a copy of a tensor that the index says to read from another.
    """
    if path.endswith(".safetensors"):
        return {path: []}
    whole, index = os.path.join(path, WEIGHTS_FILE), os.path.join(path, SHARDS_FILE)
    if os.path.exists(whole):
        return {whole: []}
    if os.path.exists(index):
        return _shards(index)
    for name in PICKLED_FILES:
        if path.endswith(name) or os.path.exists(os.path.join(path, name)):
            raise InputError(
                f"{path}: has only {name}, a pickle, which cannot be read here; convert it with "
                "transformers' save_pretrained(folder, safe_serialization=True), which writes "
                "model.safetensors"
            )
    raise InputError(f"{path}: has no {WEIGHTS_FILE}")


def _shards(index: str) -> dict[str, list[str]]:
    found = {}
    weight_map = field(reading.read_json(files.check_model_file(index)), "weight_map", dict, index)
    for name, shard in weight_map.items():
        if (
            not isinstance(shard, str)
            or shard != os.path.basename(shard)
            or not shard.endswith(".safetensors")
        ):
            raise InputError(
                f"{index}: weight_map names {shard!r}, which is no safetensors file beside it; "
                "fetch the file again"
            )
        found.setdefault(os.path.join(os.path.dirname(index), shard), []).append(name)
    return found
