"""Reads and writes Hugging Face folders: config.json and model.safetensors, whole or in shards."""

import json
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from official_bert import model_types
from official_bert.checkpoints import names
from official_bert.config import POOLER_ACTIVATION, BertConfig
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.reading import field
from official_bert.options.serving import MODEL_CLASSES

WEIGHTS_FILE = "model.safetensors"
SHARDS_FILE = "model.safetensors.index.json"
PICKLED_FILES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
CONFIG_FILE = "config.json"
LINEAR_HEAD = "output_weights"
_WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
_POOLER = "bert/pooler/"
SEQUENCE_CLASSIFICATION = MODEL_CLASSES["classification"]
# A class of transformers with a masked LM head -> the prefixes of the TF1 names of the weights of
# BertForPreTraining that the class lacks.
_MISSING_WEIGHTS = {"BertForMaskedLM": (_POOLER, "cls/seq_relationship/")}
# The classes of transformers whose head reads the output of the pooler.
_CLASSES_WITH_POOLER = (
    "BertForPreTraining",
    SEQUENCE_CLASSIFICATION,
    MODEL_CLASSES["choice"],
)
_FLOATS = {
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}


class HuggingFaceCheckpoint:
    """Weights of a Hugging Face model, under their TF1 names and in TF1's layout.

    A tensor that the table of names lacks keeps its own name. A type that is not a float keeps the
    name that the format has for it. The weights of another model than BERT, which `model_types`
    knows, have the names of a BERT.

    Attributes:
        path: the folder, or the model.safetensors file.
        shapes: TF1 name -> shape, sorted by name.
        dtypes: TF1 name -> the name of the type.
    """

    def __init__(self, path: str):
        """Opens the weights of a folder.

        Args:
            path: the folder, or a model.safetensors file.

        Raises:
            InputError: a file is missing or corrupt, or two tensors contradict one another.
        """
        self.path = path
        config = _read_config(path)
        model_type = model_types.find(config)
        self._bert_config = model_types.to_bert_fields(config)
        # The name of a tensor in the files of a BERT -> the file with it, and its name there.
        self._open_files: dict[str, Any] = {}
        self._stored_names: dict[str, str] = {}
        for file, listed_names in _list_weight_files(path).items():
            for stored_name, open_file in _open_tensors(file, listed_names).items():
                name = model_type.rename_weight(stored_name) if model_type else stored_name
                self._open_files[name] = open_file
                self._stored_names[name] = stored_name
        self._entries: dict[str, names.Entry] = {}
        for name in self._open_files:
            if not names.is_redundant(name):
                self._add_entry(name)
        if model_type:
            self._add_zero_tables(model_type)
        entries = sorted(self._entries.items())
        self.dtypes = {name: self._read_dtype(entry) for name, entry in entries}
        self._check_copies()
        self.shapes = {name: self._read_shape(entry) for name, entry in entries}

    def _add_entry(self, name: str):
        entry = names.from_huggingface(name) or names.Entry(name, name)
        earlier_entry = self._entries.get(entry.tf1)
        if earlier_entry:
            self._check_same(earlier_entry.huggingface, name)
        self._entries[entry.tf1] = entry._replace(huggingface=name)

    def _add_zero_tables(self, model_type: model_types.ModelType):
        """Adds the tables of a BERT that the files of another model lack, because they are zero."""
        if _WORD_EMBEDDINGS not in self._entries:
            return
        shape = self._read_shape(self._entries[_WORD_EMBEDDINGS])
        for name, num_rows in model_type.zero_tables.items():
            if name not in self._open_files:
                self._open_files[name] = _ZeroTable((num_rows, *shape[1:]))
                self._add_entry(name)

    def read(self, name: str) -> np.ndarray:
        """Reads a weight; 16-bit floats become float32.

        Args:
            name: its TF1 name.
        """
        entry = self._entries[name]
        tensor = self._read_tensor(entry.huggingface)
        return np.ascontiguousarray(tensor.T) if entry.transposed else tensor

    @property
    def weights_missing_from_class(self) -> tuple[str, ...]:
        """The prefixes of the weights that the class in config.json lacks, if there is one."""
        classes = self._bert_config.get("architectures")
        if not isinstance(classes, list) or len(classes) != 1:
            return ()
        return _MISSING_WEIGHTS.get(str(classes[0]), ())

    def replace_weights(
        self,
        new_weights: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        """Returns all tensors of the files, some of them with new values.

        Args:
            new_weights: TF1 name -> value of weights of names.COPIES. Their copies get it, too.

        Returns:
            Hugging Face name -> tensor in its type.
        """
        tensors = {}
        for name, stored_name in self._stored_names.items():
            tensors[stored_name] = self._open_files[name].get_tensor(stored_name)
        for name, value in new_weights.items():
            entry = self._entries[name]
            for copy in (entry.huggingface, names.COPIES[name]):
                stored_name = self._find_stored_name(copy)
                if stored_name in tensors:
                    dtype = tensors[stored_name].dtype
                    tensors[stored_name] = value.astype(dtype)
        return tensors

    def _read_tensor(self, name: str) -> np.ndarray:
        """Reads a tensor by its name in the files of a BERT."""
        stored_name = self._find_stored_name(name)
        tensor = self._open_files[name].get_tensor(stored_name)
        dtype = tensor.dtype
        is_short_float = dtype.itemsize == 2 and dtype.kind not in "iu"
        return tensor.astype(np.float32) if is_short_float else tensor

    def _read_dtype(self, entry: names.Entry) -> str:
        stored_type: str = self._get_slice(entry).get_dtype()
        return _FLOATS.get(stored_type, stored_type)

    def _read_shape(self, entry: names.Entry) -> tuple[int, ...]:
        shape = tuple(self._get_slice(entry).get_shape())
        return shape[::-1] if entry.transposed else shape

    def _get_slice(self, entry: names.Entry) -> Any:
        """Returns the slice of safetensors by which the metadata of a tensor are read."""
        name = entry.huggingface
        stored_name = self._find_stored_name(name)
        return self._open_files[name].get_slice(stored_name)

    def _find_stored_name(self, name: str) -> str:
        """Returns the name of a tensor in the file, by its name in the files of a BERT."""
        return self._stored_names.get(name, name)

    def _check_copies(self):
        """Refuses a tensor that should copy another one, and differs."""
        for tf1_name, copy in names.COPIES.items():
            entry = self._entries.get(tf1_name)
            if not entry or copy not in self._open_files:
                continue
            # A type that numpy lacks is refused where the weight is read.
            if self.dtypes[tf1_name] not in _FLOATS.values():
                continue
            weight = self._read_tensor(entry.huggingface)
            copied_weight = self._read_tensor(copy)
            if not np.array_equal(copied_weight, weight):
                copy_name = self._find_stored_name(copy)
                name = self._find_stored_name(entry.huggingface)
                shared = "the word embeddings" if copy == names.TIED_TABLE else "this bias"
                raise InputError(
                    f"{self.path}: {copy_name} differs from {name}; only models that share "
                    f"{shared} with the output layer can be loaded"
                )

    def _check_same(self, name: str, other: str):
        """Refuses a weight that has two names with different values."""
        value = self._read_tensor(name)
        other_value = self._read_tensor(other)
        if not np.array_equal(value, other_value):
            raise InputError(
                f"{self.path}: {self._find_stored_name(name)} and {self._find_stored_name(other)} "
                "name the same weight and differ; remove the one that is not of this model"
            )


class _ZeroTable:
    """A table of zeros that is read like a tensor in a file of safetensors."""

    def __init__(self, shape: tuple[int, ...]):
        self._shape = shape

    def get_tensor(self, name: str) -> np.ndarray:
        return np.zeros(self._shape, np.float32)

    def get_slice(self, name: str) -> "_ZeroTable":
        return self

    def get_shape(self) -> tuple[int, ...]:
        return self._shape

    def get_dtype(self) -> str:
        return "F32"


def is_weights_file(path: str) -> bool:
    """Returns whether a path names a file of weights in one of Hugging Face's formats.

    Args:
        path: the path; the file need not exist.
    """
    return path.endswith((".safetensors", *PICKLED_FILES))


def is_huggingface(path: str) -> bool:
    """Returns whether a path has weights in a format of Hugging Face: a folder, or a file.

    Args:
        path: the path of a folder or a file. Only the name of a file is read, and it need not
            exist.
    """
    if is_weights_file(path):
        return True
    file_names = (WEIGHTS_FILE, SHARDS_FILE, *PICKLED_FILES)
    weight_files = [os.path.join(path, name) for name in file_names]
    return any(map(files.exists, weight_files))


def _read_config(path: str) -> dict[str, Any]:
    """Returns the content of the config.json beside the weights; nothing without such a file."""
    folder = os.path.dirname(path) if is_weights_file(path) else path
    config_path = os.path.join(folder, CONFIG_FILE)
    if not files.exists(config_path):
        return {}
    content = reading.read_json(files.check_model_file(config_path))
    return reading.check_object(content, config_path)


def _open_tensors(file: str, listed_names: list[str]) -> dict[str, Any]:
    """Opens a safetensors file; returns it under the name of each tensor that it is read for."""
    try:
        open_file = safetensors.safe_open(
            files.check_model_file(file),
            framework="numpy",
        )
    except (safetensors.SafetensorError, OSError) as error:
        raise InputError(
            f"{file}: cannot be read as safetensors ({error}); fetch the file again"
        ) from None
    stored_names = open_file.keys()
    if absent_names := set(listed_names).difference(stored_names):
        raise InputError(
            f"{file}: lacks {min(absent_names)}, which {SHARDS_FILE} lists; fetch both again"
        )
    return dict.fromkeys(listed_names or stored_names, open_file)


def write(
    folder: str,
    tensors: Mapping[str, np.ndarray],
    config: BertConfig,
    linear_class: str = SEQUENCE_CLASSIFICATION,
    labels: Sequence[str] | None = None,
    further_fields: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Writes the config.json and the model.safetensors of a model.

    Args:
        folder: the folder.
        tensors: the weights by TF1 name, each of which the table of names has.
        config: the configuration of the model.
        linear_class: the class of transformers for a model with the head `output_weights`, whose
            shape is the same for texts, tokens and choices.
        labels: the labels in the order of the outputs; None for LABEL_0, LABEL_1, ...
        further_fields: further fields of config.json.

    Raises:
        InputError: Hugging Face has no configuration for the model.
    """
    if config.pooler_activation != POOLER_ACTIVATION:
        architecture = _choose_class(list(tensors), linear_class)
        tensors = _leave_out_pooler(tensors, architecture, config.pooler_activation)
    entries: list[names.Entry] = []
    for name in tensors:
        entry = names.to_huggingface(name)
        assert entry is not None, "the table has all names"
        entries.append(entry)
    tf1_names = [entry.tf1 for entry in entries]
    heads = [name for name in tf1_names if not name.startswith("bert/")]
    # Without a head, the weights are those of transformers' BertModel, whose names have no prefix.
    prefix = "" if heads else "bert."
    renamed_tensors = {}
    for entry in entries:
        tensor = np.asarray(tensors[entry.tf1])
        tensor = tensor.T if entry.transposed else tensor
        new_name = entry.huggingface.removeprefix(prefix)
        renamed_tensors[new_name] = np.ascontiguousarray(tensor)

    architecture = _choose_class(heads, linear_class)
    fields = config.to_huggingface_dict() | dict(further_fields)
    fields["architectures"] = [architecture]
    if architecture in (SEQUENCE_CLASSIFICATION, MODEL_CLASSES["tagging"]):
        num_outputs = len(tensors["output_bias"])
        if labels is None or len(labels) != num_outputs:
            labels = [f"LABEL_{i}" for i in range(num_outputs)]
        numbered_labels = list(enumerate(labels))
        fields["id2label"] = {str(number): label for number, label in numbered_labels}
        fields["label2id"] = {label: number for number, label in numbered_labels}
    content = json.dumps(fields, indent=2, sort_keys=True) + "\n"
    config_path = os.path.join(folder, CONFIG_FILE)
    with writing.replacing(config_path) as file:
        file.write(content)
    weights_path = os.path.join(folder, WEIGHTS_FILE)
    write_tensors(weights_path, renamed_tensors)


def _leave_out_pooler(
    tensors: Mapping[str, np.ndarray], architecture: str, activation: str
) -> dict[str, np.ndarray]:
    """Returns the weights without those of a pooler whose activation transformers would not keep.

    Raises:
        InputError: the head of the class reads the output of the pooler.
    """
    if architecture in _CLASSES_WITH_POOLER:
        raise InputError(
            f"pooler_act: is {activation}, which Hugging Face's {architecture} would not keep; "
            "write the format of the original, tf1"
        )
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(_POOLER)}


def write_tensors(
    path: str,
    tensors: dict[str, np.ndarray],
) -> None:
    """Writes a safetensors file.

    Args:
        path: the path of the file.
        tensors: the tensors by name.
    """
    content = safetensors.numpy.save(tensors, metadata={"format": "pt"})
    with writing.replacing(path, "wb") as file:
        file.write(content)


def _choose_class(heads: list[str], linear_class: str) -> str:
    """Returns the name of the transformers class that has these heads."""
    if "cls/seq_relationship/output_weights" in heads:
        return "BertForPreTraining"
    if "cls/predictions/output_bias" in heads:
        return "BertForMaskedLM"
    if "cls/squad/output_weights" in heads:
        return "BertForQuestionAnswering"
    return linear_class if LINEAR_HEAD in heads else "BertModel"


def _list_weight_files(path: str) -> dict[str, list[str]]:
    """Returns the names of the tensors to read by file; an empty list means all tensors of a file.

    A shard may have a copy of a tensor that the index assigns to another shard.
    """
    if path.endswith(".safetensors"):
        return {path: []}
    single_file = os.path.join(path, WEIGHTS_FILE)
    if os.path.exists(single_file):
        return {single_file: []}
    index = os.path.join(path, SHARDS_FILE)
    if os.path.exists(index):
        return _list_shards(index)
    for name in PICKLED_FILES:
        pickle_in_folder = os.path.join(path, name)
        if path.endswith(name) or os.path.exists(pickle_in_folder):
            raise InputError(
                f"{path}: has only {name}, a pickle, which cannot be read here; convert it with "
                "transformers' save_pretrained(folder, safe_serialization=True), which writes "
                "model.safetensors"
            )
    raise InputError(f"{path}: has no {WEIGHTS_FILE}; download it, or name the folder that has it")


def _list_shards(index: str) -> dict[str, list[str]]:
    """Returns the names of the tensors to read by shard."""
    index_file = files.check_model_file(index)
    content = reading.read_json(index_file)
    weight_map = field(content, "weight_map", dict, index)
    shard_tensors: dict[str, list[str]] = {}
    for name, shard in weight_map.items():
        if (
            not isinstance(shard, str)
            or shard != os.path.basename(shard)
            or not shard.endswith(".safetensors")
        ):
            raise InputError(
                f"{index}: weight_map names {shard!r}, which is not a safetensors file in the same "
                "folder; fetch the file again"
            )
        path = os.path.join(os.path.dirname(index), shard)
        shard_names = shard_tensors.setdefault(path, [])
        shard_names.append(name)
    return shard_tensors
