"""How a model turns a text into weighted words, as its folder says it.

In: a folder with modules.json of sentence-transformers' SparseEncoder, or with task.json of a
training here. Out: `SparseModules`; `write` writes them as sentence-transformers reads them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from official_bert.checkpoints import huggingface
from official_bert.checkpoints.loading import open_checkpoint
from official_bert.extensions.sparse.options import ACTIVATIONS, IDF, LOOKUP, MODEL, SPARSE
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.reading import check_object, field, has_type
from official_bert.model_dir import ModelFolder, TaskRecord
from official_bert.tokenizer_config import TokenizerConfig
from official_bert.version import __version__

MODULES_NAME = "modules.json"
CONFIG_NAME = "config_sentence_transformers.json"
ENCODER_CONFIG_NAME = "sentence_bert_config.json"
ROUTER_NAME = "router_config.json"
MODEL_TYPE = "SparseEncoder"
QUERY_WEIGHTS = "query_lookup/weights"  # float32[V]
HEAD_WEIGHT = "cls/predictions/output_bias"  # of each masked LM
_ENCODERS = ("MLMTransformer", "Transformer")
_POOLING, _LOOKUP, _ROUTER = "SpladePooling", "SparseStaticEmbedding", "Router"
_MODULES = "sentence_transformers.sparse_encoder.models"
# The folders of the modules behind a Router.
_DOCUMENT_ENCODER = "document_0_MLMTransformer"
_DOCUMENT_POOLING = "document_1_SpladePooling"
_QUERY_LOOKUP = "query_0_SparseStaticEmbedding"


class SparseModules(NamedTuple):
    """The way from a text to its weighted words; the defaults are a plain masked LM's.

    Attributes:
        encoder: the folder of the masked LM.
        term_activation: one of ACTIVATIONS.
        query_encoder: one of QUERY_ENCODERS.
        query_weights: the weight of each word in queries, float32[V]; None if the model encodes
            queries, or if the checkpoint of the encoder has the weights.
        max_terms: the number of words of a text that are kept; None for all.
        max_seq_length: the number of tokens to which texts are truncated; None for the longest
            sequence of the model.
    """

    encoder: str
    term_activation: str = ACTIVATIONS[0]
    query_encoder: str = MODEL
    query_weights: np.ndarray | None = None
    max_terms: int | None = None
    max_seq_length: int | None = None

    @classmethod
    def load(cls, folder: str) -> Self:
        """Read the way from a text to its weighted words.

        Args:
            folder: the folder of a model.

        Returns:
            The content of modules.json, else of the record of a training, else the defaults.

        Raises:
            InputError: a file is damaged, or has a module that cannot be used.
        """
        if has_modules(folder):
            return cls._read(folder)
        record = ModelFolder(folder).task()
        if record and record.family == SPARSE:
            names = {*cls._fields} & record.settings.keys()
            return cls(folder, **{name: record.settings[name] for name in names})
        return cls(folder)

    @classmethod
    def _read(cls, folder: str) -> Self:
        """Reads modules.json of sentence-transformers and the files that it names."""
        path = os.path.join(folder, MODULES_NAME)
        entries = reading.read_json(files.check_model_file(path))
        kinds = [_kind(field(entry, "type", str, path)) for entry in entries]
        folders = [os.path.join(folder, field(entry, "path", str, path)) for entry in entries]
        config = _read_settings(folder, CONFIG_NAME)
        prompts = config.get("prompts") or {}
        if isinstance(prompts, Mapping) and any(prompts.values()):
            raise InputError(
                f"{folder}: has prompts, which sparse models here cannot put before texts"
            )
        max_terms = config.get("max_active_dims")
        if max_terms is not None and (not has_type(max_terms, int) or max_terms < 1):
            raise InputError(
                f"{folder}: its max_active_dims is {max_terms!r}; write a positive whole number"
            )
        if kinds == [_ROUTER]:
            modules = cls._read_router(folders[0])
        elif len(kinds) == 2 and kinds[0] in _ENCODERS and kinds[1] == _POOLING:
            modules = cls._read_encoder(*folders)
        else:
            raise InputError(
                f"{path}: lists the modules {', '.join(kinds)}; only MLMTransformer with "
                f"{_POOLING}, or a {_ROUTER} of them and a {_LOOKUP}, can be used"
            )
        return modules._replace(max_terms=max_terms)

    @classmethod
    def _read_router(cls, folder: str) -> Self:
        path = os.path.join(folder, ROUTER_NAME)
        config = _read_settings(folder, ROUTER_NAME)
        types = check_object(config.get("types"), path)
        structure = check_object(config.get("structure"), path)
        routes = {}
        for route in ("query", "document"):
            names = structure.get(route)
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise InputError(f"{path}: has no list of modules for the route {route}")
            routes[route] = names
        kinds = {route: [_kind(types.get(name)) for name in routes[route]] for route in routes}
        if kinds["query"] != [_LOOKUP] or kinds["document"][1:] != [_POOLING]:
            raise InputError(
                f"{path}: routes queries to {', '.join(kinds['query'])} and documents to "
                f"{', '.join(kinds['document'])}; only {_LOOKUP}, and MLMTransformer with "
                f"{_POOLING}, can be used"
            )
        encoder, pooling = (os.path.join(folder, name) for name in routes["document"])
        lookup = os.path.join(folder, routes["query"][0])
        lookup_config = _read_settings(lookup)
        if "path" in lookup_config:
            raise InputError(
                f"{lookup}: names {lookup_config['path']} for its weights; load and save the model "
                "with sentence-transformers, which then writes model.safetensors"
            )
        weights = open_checkpoint(lookup)
        if set(weights.shapes) != {"weight"}:
            raise InputError(f"{lookup}: its weights are not those of a {_LOOKUP}; fetch them")
        return cls._read_encoder(encoder, pooling)._replace(
            query_encoder=IDF if lookup_config.get("frozen") else LOOKUP,
            query_weights=weights.read("weight"),
        )

    @classmethod
    def _read_encoder(cls, encoder: str, pooling: str) -> Self:
        """Reads the settings of the masked LM and of its pooling."""
        pooling_config = _read_settings(pooling)
        strategy = pooling_config.get("pooling_strategy", "max")
        activation = pooling_config.get("activation_function", ACTIVATIONS[0])
        if strategy != "max" or activation not in ACTIVATIONS:
            raise InputError(
                f"{pooling}: pools by {strategy} with {activation}; only max with one of "
                f"{', '.join(ACTIVATIONS)} can be used"
            )
        encoder_config = _read_settings(encoder, ENCODER_CONFIG_NAME)
        task = encoder_config.get("transformer_task", "fill-mask")
        length = encoder_config.get("max_seq_length") or getattr(
            TokenizerConfig.read(encoder), "model_max_length", None
        )
        if task != "fill-mask" or (
            length is not None and (not has_type(length, int) or length < 1)
        ):
            raise InputError(
                f"{os.path.join(encoder, ENCODER_CONFIG_NAME)}: transformer_task is {task!r} and "
                f"max_seq_length {length!r}; only fill-mask and a positive whole number can be used"
            )
        return cls(encoder, activation, max_seq_length=length)

    def record(self) -> TaskRecord:
        """Returns the record of a training of this model."""
        names = ("term_activation", "query_encoder", "max_terms", "max_seq_length")
        settings = {name: getattr(self, name) for name in names}
        return TaskRecord(
            SPARSE, SPARSE, {name: value for name, value in settings.items() if value is not None}
        )


def has_modules(folder: str) -> bool:
    """Return whether a folder is one of sentence-transformers' SparseEncoder.

    Args:
        folder: the folder of a model.
    """
    if not files.exists(os.path.join(folder, MODULES_NAME)):
        return False
    return _read_settings(folder, CONFIG_NAME).get("model_type") == MODEL_TYPE


def read_record(folder: str) -> dict[str, Any]:
    """Return the settings of a sparse model by the arguments of SparseTask.

    Args:
        folder: the folder of a model, or its checkpoint.

    Returns:
        The settings; none for a plain masked LM.
    """
    modules = SparseModules.load(folder)
    if modules == SparseModules(folder):
        return {}
    return {
        "query_encoder": modules.query_encoder,
        "term_activation": modules.term_activation,
        "max_terms": modules.max_terms,
    }


def write(folder: str, modules: SparseModules) -> None:
    """Write modules.json and the files that it names.

    The model is in the folder itself, or, if queries have weights of their own, in a subfolder.

    Args:
        folder: the folder with the files of the masked LM, which may be moved.
        modules: the way from a text to its weighted words.
    """
    pooling_config = {
        "pooling_strategy": "max",
        "activation_function": modules.term_activation,
        "embedding_dimension": None,
    }
    encoder_config = {
        "max_seq_length": modules.max_seq_length,
        "transformer_task": "fill-mask",
        "do_lower_case": False,
    }
    contents: dict[str, Any] = {
        CONFIG_NAME: {
            "__version__": {"official_bert": __version__},
            "model_type": MODEL_TYPE,
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "dot",
            "max_active_dims": modules.max_terms,
        }
    }
    if modules.query_weights is None:
        listed = {"": f"{_MODULES}.MLMTransformer", "1_SpladePooling": f"{_MODULES}.{_POOLING}"}
        contents[ENCODER_CONFIG_NAME] = encoder_config
        contents["1_SpladePooling/config.json"] = pooling_config
    else:
        listed = {"": f"sentence_transformers.models.{_ROUTER}"}
        _move_encoder(folder)
        lookup_folder = os.path.join(folder, _QUERY_LOOKUP)
        huggingface.write_tensors(
            os.path.join(lookup_folder, huggingface.WEIGHTS_FILE),
            {"weight": modules.query_weights},
        )
        contents[f"{_DOCUMENT_ENCODER}/{ENCODER_CONFIG_NAME}"] = encoder_config
        contents[f"{_DOCUMENT_POOLING}/config.json"] = pooling_config
        contents[f"{_QUERY_LOOKUP}/config.json"] = {"frozen": modules.query_encoder == IDF}
        contents[ROUTER_NAME] = {
            "types": {
                _QUERY_LOOKUP: f"{_MODULES}.{_LOOKUP}",
                _DOCUMENT_ENCODER: f"{_MODULES}.MLMTransformer",
                _DOCUMENT_POOLING: f"{_MODULES}.{_POOLING}",
            },
            "structure": {
                "query": [_QUERY_LOOKUP],
                "document": [_DOCUMENT_ENCODER, _DOCUMENT_POOLING],
            },
            "parameters": {"default_route": "document", "allow_empty_key": True},
        }
    contents[MODULES_NAME] = [
        {"idx": number, "name": str(number), "path": path, "type": kind}
        for number, (path, kind) in enumerate(listed.items())
    ]
    for name, content in contents.items():
        path = os.path.join(folder, name)
        files.make_folder(os.path.dirname(path))
        with writing.replacing(path) as file:
            file.write(json.dumps(content, indent=2) + "\n")


def _move_encoder(folder: str):
    """Moves the files of the masked LM into the subfolder of documents.

    The look-up of queries gets those of the tokenizer, too.
    """
    names = sorted(os.listdir(folder))
    for subfolder in (_DOCUMENT_ENCODER, _QUERY_LOOKUP):
        files.make_folder(os.path.join(folder, subfolder))
    for name in names:
        path = os.path.join(folder, name)
        if name in (huggingface.CONFIG_FILE, *_TOKENIZER_FILES):
            with open(path, "rb") as file:
                content = file.read()
            with writing.replacing(os.path.join(folder, _QUERY_LOOKUP, name), "wb") as copy:
                copy.write(content)
        os.replace(path, os.path.join(folder, _DOCUMENT_ENCODER, name))


_TOKENIZER_FILES = (
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
)


def module_files(folder: str) -> list[str]:
    """Return the names of the files and folders of a SparseEncoder beside its encoder.

    Args:
        folder: the folder of the model, which `has_modules`.
    """
    names = [
        MODULES_NAME,
        CONFIG_NAME,
        ENCODER_CONFIG_NAME,
        ROUTER_NAME,
        "1_SpladePooling",
        _DOCUMENT_ENCODER,
        _DOCUMENT_POOLING,
        _QUERY_LOOKUP,
    ]
    return [name for name in names if files.exists(os.path.join(folder, name))]


def _kind(module: Any) -> str:
    """Returns the name of a module's class, the last part of its type."""
    return str(module).rpartition(".")[2]


def _read_settings(folder: str, name: str = "config.json") -> dict[str, Any]:
    """Returns the content of a module's file, empty if there is none."""
    path = os.path.join(folder, name)
    return check_object(reading.read_json(path), path) if files.exists(path) else {}
