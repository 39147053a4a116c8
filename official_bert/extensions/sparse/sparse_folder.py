"""How a model turns a text into weighted words, as its folder says it.

In: a folder with modules.json of sentence-transformers' SparseEncoder, or with task.json of a
training here. Out: `SparseModules`; `write` writes them as sentence-transformers reads them.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Self

import numpy as np

from official_bert.checkpoints import huggingface, sentence_transformers
from official_bert.checkpoints.loading import open_checkpoint
from official_bert.checkpoints.sentence_transformers import get_kind, read_settings
from official_bert.extensions.sparse.options import ACTIVATIONS, IDF, LOOKUP, MODEL, SPARSE
from official_bert.io import files, writing
from official_bert.io.errors import InputError
from official_bert.io.reading import check_object
from official_bert.model_dir import ModelFolder, TaskRecord

ROUTER_NAME = "router_config.json"
MODEL_TYPE = "SparseEncoder"
QUERY_WEIGHTS = "query_lookup/weights"  # float32[V]
HEAD_WEIGHT = "cls/predictions/output_bias"  # of each masked LM
_ENCODERS = ("MLMTransformer", "Transformer")
_POOLING, _LOOKUP, _ROUTER = "SpladePooling", "SparseStaticEmbedding", "Router"
_MODULES = "sentence_transformers.sparse_encoder.models"
_POOLING_FOLDER = "1_SpladePooling"
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
        listed_modules = sentence_transformers.read_modules(folder)
        kinds = [module.kind for module in listed_modules]
        folders = [module.folder for module in listed_modules]
        sentence_transformers.refuse_prompts(folder, "sparse models")
        config = read_settings(folder, sentence_transformers.CONFIG_NAME)
        max_terms = config.get("max_active_dims")
        sentence_transformers.check_count(max_terms, "its max_active_dims", folder)
        if kinds == [_ROUTER]:
            modules = cls._read_router(folders[0])
        elif len(kinds) == 2 and kinds[0] in _ENCODERS and kinds[1] == _POOLING:
            modules = cls._read_encoder(*folders)
        else:
            path = os.path.join(folder, sentence_transformers.MODULES_NAME)
            raise InputError(
                f"{path}: lists the modules {', '.join(kinds)}; only MLMTransformer with "
                f"{_POOLING}, or a {_ROUTER} of them and a {_LOOKUP}, can be used"
            )
        return modules._replace(max_terms=max_terms)

    @classmethod
    def _read_router(cls, folder: str) -> Self:
        path = os.path.join(folder, ROUTER_NAME)
        config = read_settings(folder, ROUTER_NAME)
        types = check_object(config.get("types"), path)
        structure = check_object(config.get("structure"), path)
        routes = {}
        for route in ("query", "document"):
            names = structure.get(route)
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise InputError(f"{path}: has no list of modules for the route {route}")
            routes[route] = names
        kinds = {
            route: [get_kind(str(types.get(name))) for name in names]
            for route, names in routes.items()
        }
        if kinds["query"] != [_LOOKUP] or kinds["document"][1:] != [_POOLING]:
            raise InputError(
                f"{path}: routes queries to {', '.join(kinds['query'])} and documents to "
                f"{', '.join(kinds['document'])}; only {_LOOKUP}, and MLMTransformer with "
                f"{_POOLING}, can be used"
            )
        encoder, pooling = (os.path.join(folder, name) for name in routes["document"])
        lookup = os.path.join(folder, routes["query"][0])
        lookup_config = read_settings(lookup)
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
        pooling_config = read_settings(pooling)
        strategy = pooling_config.get("pooling_strategy", "max")
        activation = pooling_config.get("activation_function", ACTIVATIONS[0])
        if strategy != "max" or activation not in ACTIVATIONS:
            raise InputError(
                f"{pooling}: pools by {strategy} with {activation}; only max with one of "
                f"{', '.join(ACTIVATIONS)} can be used"
            )
        encoder_config = read_settings(encoder, sentence_transformers.ENCODER_CONFIG_NAME)
        task = encoder_config.get("transformer_task", "fill-mask")
        length = sentence_transformers.find_length(encoder)
        if task != "fill-mask" or not sentence_transformers.is_count(length):
            path = os.path.join(encoder, sentence_transformers.ENCODER_CONFIG_NAME)
            raise InputError(
                f"{path}: transformer_task is {task!r} and "
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
    return sentence_transformers.is_model(folder, MODEL_TYPE)


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
        sentence_transformers.CONFIG_NAME: sentence_transformers.make_config(
            model_type=MODEL_TYPE,
            prompts={},
            default_prompt_name=None,
            similarity_fn_name="dot",
            max_active_dims=modules.max_terms,
        )
    }
    if modules.query_weights is None:
        class_paths = {
            "": f"{_MODULES}.MLMTransformer",
            _POOLING_FOLDER: f"{_MODULES}.{_POOLING}",
        }
        contents[sentence_transformers.ENCODER_CONFIG_NAME] = encoder_config
        contents[f"{_POOLING_FOLDER}/config.json"] = pooling_config
    else:
        class_paths = {"": f"sentence_transformers.models.{_ROUTER}"}
        _move_encoder(folder)
        sentence_transformers.write_weights(
            os.path.join(folder, _QUERY_LOOKUP),
            {"weight": modules.query_weights},
        )
        encoder_config_path = f"{_DOCUMENT_ENCODER}/{sentence_transformers.ENCODER_CONFIG_NAME}"
        contents[encoder_config_path] = encoder_config
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
    entries = sentence_transformers.make_entries(class_paths)
    contents[sentence_transformers.MODULES_NAME] = entries
    sentence_transformers.write_settings(folder, contents)


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
        ROUTER_NAME,
        _DOCUMENT_ENCODER,
        _DOCUMENT_POOLING,
        _QUERY_LOOKUP,
    ]
    return sentence_transformers.list_files(folder, names)
