"""How a model turns a text into the vectors of its tokens, as its folder says it.

In: a folder with modules.json of sentence-transformers' MultiVectorEncoder or of PyLate, or with
task.json of a training here. Out: `MultiVectorModules`; `write` writes them as
sentence-transformers reads them.
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import numpy as np

from official_bert.checkpoints import dense_module, sentence_transformers
from official_bert.checkpoints.sentence_transformers import read_settings
from official_bert.extensions.late_interaction.options import (
    LATE_INTERACTION,
    QUERY_LENGTH,
    TOKEN_WIDTH,
)
from official_bert.io.errors import InputError
from official_bert.io.reading import check_object, has_type
from official_bert.model_dir import ModelFolder, TaskRecord
from official_bert.tokenization import load_vocab

MODEL_TYPE = "MultiVectorEncoder"
_PYLATE_TYPE = "ColBERT"  # the class of PyLate, whose settings are in one file
KERNEL = "token_projection/kernel"  # float32[hidden, D]
_KINDS = ["Transformer", "Dense", "MultiVectorMask", "Normalize"]
_PYLATE_KINDS = _KINDS[:2]
_PYLATE_DENSE = "pylate.models.Dense.Dense"
# The markers in config_sentence_transformers.json, by the fields of MultiVectorModules.
_MARKER_FIELDS = {"query_marker": "query_prefix", "document_marker": "document_prefix"}
# Or they are prompts, which are words in brackets.
_PROMPT_NAMES = {"query_marker": "query", "document_marker": "document"}
_MARKER = re.compile(r"\[\w+\] ?")
_DENSE, _MASK, _NORMALIZE = "1_Dense", "2_MultiVectorMask", "3_Normalize"
# Folder -> class.
_MODULES = {
    "": "sentence_transformers.base.modules.transformer.Transformer",
    _DENSE: "sentence_transformers.base.modules.dense.Dense",
    _MASK: "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
    _NORMALIZE: "sentence_transformers.sentence_transformer.modules.normalize.Normalize",
}


class MultiVectorModules(NamedTuple):
    """The way from a text to the vectors of its tokens.

    Attributes:
        encoder: the folder of the encoder.
        kernel: the projection, float32[hidden, D]; None if the encoder's checkpoint has it.
        token_width: D.
        query_length: the number of tokens of every query; 0 leaves queries as they are.
        attend_to_expansion: whether queries attend to the [MASK] behind them.
        skip_punctuation: whether the vectors of punctuation in documents are left out.
        query_marker: the word of the vocabulary, or the added token, behind the [CLS] of queries;
            "" for none.
        document_marker: that of documents.
        max_seq_length: the number of tokens to which documents are truncated; None for the longest
            sequence of the model.
    """

    encoder: str
    kernel: np.ndarray | None = None
    token_width: int = TOKEN_WIDTH
    query_length: int = QUERY_LENGTH
    attend_to_expansion: bool = False
    skip_punctuation: bool = True
    query_marker: str = ""
    document_marker: str = ""
    max_seq_length: int | None = None

    @classmethod
    def load(cls, folder: str) -> Self:
        """Read the way from a text to the vectors of its tokens.

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
        if record and record.family == LATE_INTERACTION:
            names = {*cls._fields} & record.settings.keys()
            return cls(folder, **{name: record.settings[name] for name in names})
        return cls(folder)

    @classmethod
    def _read(cls, folder: str) -> Self:
        """Reads modules.json and the files that it names."""
        modules = sentence_transformers.read_modules(folder)
        kinds = [_PYLATE_KINDS[1] if one.kind == _PYLATE_DENSE else one.kind for one in modules]
        is_pylate = sentence_transformers.is_model(folder, _PYLATE_TYPE)
        expected_kinds = _PYLATE_KINDS if is_pylate else _KINDS
        if kinds != expected_kinds:
            path = os.path.join(folder, sentence_transformers.MODULES_NAME)
            raise InputError(
                f"{path}: lists the modules {', '.join(kinds)}; only {', '.join(expected_kinds)} "
                "can be used"
            )
        encoder, dense, *others = (module.folder for module in modules)
        projection = dense_module.read(dense)
        if projection.bias.any() or projection.activation != "linear":
            raise InputError(f"{dense}: is no projection without a bias and an activation")
        kernel = projection.kernel.T
        settings = _read_pylate(folder, encoder) if is_pylate else _read_lengths(encoder)
        markers = _read_markers(folder)
        _check_markers(folder, encoder, markers.values())
        settings |= markers
        if others:
            settings["skip_punctuation"] = _read_skip_list(others[0])
        return cls(
            encoder,
            kernel=np.ascontiguousarray(kernel),
            token_width=kernel.shape[1],
            **settings,
        )

    def record(self) -> TaskRecord:
        """Returns the record of a training of this model."""
        settings = {name: getattr(self, name) for name in MODEL_SETTINGS}
        if self.max_seq_length is not None:
            settings["max_seq_length"] = self.max_seq_length
        return TaskRecord(LATE_INTERACTION, LATE_INTERACTION, settings)


MODEL_SETTINGS = (
    "token_width",
    "query_length",
    "attend_to_expansion",
    "skip_punctuation",
    *_MARKER_FIELDS,
)


def _read_markers(folder: str) -> dict[str, str]:
    """Returns the markers of a model by the fields of MultiVectorModules."""
    path = os.path.join(folder, sentence_transformers.CONFIG_NAME)
    config = read_settings(folder, sentence_transformers.CONFIG_NAME)
    prompts = config.get("prompts") or {}
    prompts = dict(check_object(prompts, path))
    markers = {}
    for name, theirs in _MARKER_FIELDS.items():
        prompt = prompts.get(_PROMPT_NAMES[name]) or ""
        is_marker = isinstance(prompt, str) and _MARKER.fullmatch(prompt)
        marker = config.get(theirs) or (prompt if is_marker else "")
        if not isinstance(marker, str):
            raise InputError(f"{path}: its {theirs} is {marker!r}; write a text")
        markers[name] = marker.strip()
    for prompt in filter(None, prompts.values()):
        if not isinstance(prompt, str) or prompt.strip() not in markers.values():
            raise InputError(
                f"{folder}: has prompts, which models of late interaction here cannot put before "
                "texts"
            )
    return markers


def _check_markers(folder: str, encoder: str, markers: Iterable[str]):
    """Refuses markers that are neither in the vocabulary of the encoder nor added to it."""
    vocab_file = ModelFolder(encoder).vocab_file
    words = [marker for marker in markers if marker]
    if vocab_file is None or not words:
        return
    vocab = load_vocab(vocab_file)
    for word in words:
        if word not in vocab:
            raise InputError(
                f"{folder}: its marker {word!r} is no word of the vocabulary, and no added token "
                "with an id; restore the files of the tokenizer"
            )


def _read_pylate(folder: str, encoder: str) -> dict[str, Any]:
    """Returns the settings of a folder of PyLate by the fields of MultiVectorModules."""
    path = os.path.join(folder, sentence_transformers.CONFIG_NAME)
    config = read_settings(folder, sentence_transformers.CONFIG_NAME)
    query_length = config.get("query_length") or QUERY_LENGTH
    length = config.get("document_length") or sentence_transformers.find_length(encoder)
    _check_lengths(path, query_length=query_length, document_length=length)
    if config.get("do_query_expansion") is False:
        query_length = 0
    return {
        "query_length": query_length,
        "attend_to_expansion": bool(config.get("attend_to_expansion_tokens")),
        "skip_punctuation": _skips_punctuation(path, config.get("skiplist_words")),
        "max_seq_length": length,
    }


def _read_skip_list(folder: str) -> bool:
    """Returns whether a MultiVectorMask leaves out punctuation."""
    config = read_settings(folder)
    if config.get("skiplist_tasks", ["document"]) != ["document"]:
        raise InputError(
            f"{folder}: leaves out tokens in {config['skiplist_tasks']}; only those in documents "
            "can be left out"
        )
    if config.get("keep_only_token_ids"):
        raise InputError(f"{folder}: has keep_only_token_ids, which is not supported")
    return _skips_punctuation(folder, config.get("skiplist_words") or [])


def _skips_punctuation(place: str, words: list[str] | None) -> bool:
    """Returns whether the words whose vectors are left out are punctuation; None stands for it."""
    if words is None:
        return True
    if {*words} not in (set(), {*string.punctuation}):
        raise InputError(
            f"{place}: leaves out {words}; only no tokens, or punctuation in documents, can be "
            "left out"
        )
    return bool(words)


def _check_lengths(path: str, **lengths: Any):
    """Refuses what is no number of tokens; None is for a length that nothing says."""
    for name, value in lengths.items():
        if value is not None and (not has_type(value, int) or value < 0):
            raise InputError(f"{path}: its {name} is {value!r}; write a whole number")


def _read_lengths(folder: str) -> dict[str, Any]:
    """Returns the settings of a Transformer by the fields of MultiVectorModules."""
    path = os.path.join(folder, sentence_transformers.ENCODER_CONFIG_NAME)
    config = read_settings(folder, sentence_transformers.ENCODER_CONFIG_NAME)
    length = sentence_transformers.find_length(folder, "document_length")
    expansion = config.get("query_expansion")
    query_length, attends = 0, False
    if expansion is not None:
        expansion = check_object(expansion, path)
        query_length = expansion.get("length")
        attends = expansion.get("attend", False)
        is_mask = expansion.get("token") in (None, "[MASK]")
        if expansion.get("strategy") != "fixed" or not is_mask:
            raise InputError(
                f"{path}: query_expansion is {expansion}; only the strategy fixed with [MASK] can "
                "be used"
            )
    elif config.get("query_length") not in (None, length):
        raise InputError(
            f"{path}: has query_length {config['query_length']} without query_expansion, and "
            f"documents of {length} tokens; queries without expansion need the same length"
        )
    _check_lengths(path, query_expansion_length=query_length, document_length=length)
    return {
        "query_length": query_length,
        "attend_to_expansion": bool(attends),
        "max_seq_length": length,
    }


def has_modules(folder: str) -> bool:
    """Return whether a folder is one of sentence-transformers' MultiVectorEncoder, or of PyLate.

    Args:
        folder: the folder of a model.
    """
    return any(sentence_transformers.is_model(folder, name) for name in (MODEL_TYPE, _PYLATE_TYPE))


def read_record(folder: str) -> dict[str, Any]:
    """Return the settings of a model of late interaction by the arguments of its task.

    Args:
        folder: the folder of a model, or its checkpoint.

    Returns:
        The settings; none for a plain encoder.
    """
    record = ModelFolder(folder).task()
    if not has_modules(folder) and (record is None or record.family != LATE_INTERACTION):
        return {}
    modules = MultiVectorModules.load(folder)
    return {name: getattr(modules, name) for name in MODEL_SETTINGS}


def write(folder: str, modules: MultiVectorModules) -> None:
    """Write modules.json and the files that it names.

    Args:
        folder: the folder of the encoder.
        modules: the way from a text to the vectors of its tokens, with the kernel.
    """
    assert modules.kernel is not None
    hidden_size, token_width = modules.kernel.shape
    expansion = None
    if modules.query_length:
        expansion = {
            "strategy": "fixed",
            "length": modules.query_length,
            "attend": modules.attend_to_expansion,
        }
    marks = list(string.punctuation) if modules.skip_punctuation else []
    markers = {}
    for name, theirs in _MARKER_FIELDS.items():
        if marker := getattr(modules, name):
            # sentence-transformers puts it before the text, which a blank has to separate.
            markers[theirs] = f"{marker.strip()} "
    contents: dict[str, Any] = {
        sentence_transformers.MODULES_NAME: sentence_transformers.make_entries(_MODULES),
        sentence_transformers.CONFIG_NAME: sentence_transformers.make_config(
            model_type=MODEL_TYPE,
            prompts={"query": "", "document": ""},
            default_prompt_name=None,
            similarity_fn_name="maxsim",
            **markers,
        ),
        sentence_transformers.ENCODER_CONFIG_NAME: {
            "transformer_task": "feature-extraction",
            "modality_config": {
                "text": {"method": "forward", "method_output_name": "last_hidden_state"}
            },
            "module_output_name": "token_embeddings",
            "document_length": modules.max_seq_length,
            "query_length": None if expansion else modules.max_seq_length,
            "query_expansion": expansion,
        },
        f"{_DENSE}/config.json": {
            "in_features": hidden_size,
            "out_features": token_width,
            "bias": False,
            "activation_function": "torch.nn.modules.linear.Identity",
            "module_input_name": "token_embeddings",
            "module_output_name": "token_embeddings",
        },
        f"{_MASK}/config.json": {"skiplist_words": marks, "skiplist_tasks": ["document"]},
        f"{_NORMALIZE}/config.json": {"module_input_name": "token_embeddings"},
    }
    sentence_transformers.write_settings(folder, contents)
    sentence_transformers.write_weights(
        os.path.join(folder, _DENSE),
        {dense_module.KERNEL: modules.kernel.T},
    )
