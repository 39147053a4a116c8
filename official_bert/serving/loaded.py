"""Loads an exported model: its signatures as functions of numpy arrays, and the files that it contains.

In: a version's folder, or the folder of versions. Out: `LoadedModel`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import typing
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.data.model_inputs import check_vocabulary
from official_bert.io import files, reading
from official_bert.io.errors import InputError
from official_bert.io.reading import field, is_of_kind
from official_bert.model_dir import LABELS_NAME
from official_bert.options.fine_tuning import AUTO
from official_bert.options.serving import PredictorOptions
from official_bert.serving.export import versions
from official_bert.tokenization import FullTokenizer

RECORD_FILE = "assets.extra/export.json"
_SETTINGS = {"export_text": bool, "max_seq_length": int, "do_lower_case": bool, "strip_accents": bool}
_OF_LABELS = {"label", "labels", "tags"}  # outputs whose strings are labels
_WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"


class Record(NamedTuple):
    """The content of an export's record file.

    Attributes:
        task_name: the name of the task, as for export_saved_model.py.
        family: key of the task's class in tasks/registry.py.
        settings: the values by flag name that a client of the model needs.
        flags: the flags of the script that made the export, to repeat it.
        versions: the versions of the packages that made the export.
    """

    task_name: str
    family: str
    settings: dict[str, Any]
    flags: dict[str, Any]
    versions: dict[str, str]


class LoadedModel:
    """A loaded SavedModel of export_saved_model.py.

    Attributes:
        path: the version's folder.
        record: the record of the export.
        tokenizer: the tokenizer of the export.
        labels: the labels in the order of the outputs; None if the task has none.
        inputs: name of a signature -> the names of its inputs.
        outputs: names of the outputs of `serving_default`.
    """

    def __init__(self, model_dir: str):
        """Loads a model.

        Raises:
            InputError: the folder has no model, one that this package did not export, or one whose files are damaged
                or do not belong together.
        """
        self.path = _version_folder(model_dir)
        self.record = self._read_record()
        settings = self.record.settings
        labels = os.path.join(self.path, "assets.extra", LABELS_NAME)
        self.labels = list(reading.read_lines(labels)) if files.exists(labels) else None
        self.tokenizer = FullTokenizer(
            self.vocab_file, settings["do_lower_case"], strip_accents=settings["strip_accents"]
        )
        if settings["export_text"]:
            _register_text_ops(self.path)
        try:
            with _quiet():
                model = tf.saved_model.load(self.path)
            self._signatures = model.signatures
            self.inputs = {
                name: tuple(function.structured_input_signature[1])
                for name, function in self._signatures.items()
            }
            outputs = self._signatures["serving_default"].structured_outputs
        except Exception as error:  # a damaged file can end in any error of the loader
            raise InputError(
                f"{self.path}: is no complete SavedModel ({_first_line(error)}); export it anew"
            ) from error
        self.outputs = set(outputs)
        self._check_parts(model, outputs)

    @property
    def vocab_file(self) -> str:
        """The path of the vocabulary."""
        return os.path.join(self.path, "assets", "vocab.txt")

    def __call__(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs a signature and returns its outputs.

        Args:
            inputs: arrays by name; those that the signature does not have are ignored.

        Raises:
            InputError: the model refuses the inputs.
        """
        try:
            tensors = {name: tf.constant(inputs[name]) for name in self.inputs[signature]}
            return {name: value.numpy() for name, value in self._signatures[signature](**tensors).items()}
        except tf.errors.OpError as error:
            raise InputError(f"{self.path}: cannot answer ({_first_line(error)})") from error

    def _check_parts(self, model, outputs: Mapping[str, tf.TensorSpec]):
        """Checks the vocabulary, the labels and the record against the graph."""
        settings = self.record.settings
        weights = getattr(model, "model_weights", {})
        if _WORD_EMBEDDINGS in weights:
            check_vocabulary(self.tokenizer, weights[_WORD_EMBEDDINGS].shape[0], self.vocab_file)
        signature = "serving_text" if settings["export_text"] else "serving_ids"
        if signature not in self.inputs:
            raise InputError(
                f"{os.path.join(self.path, RECORD_FILE)}: export_text is {settings['export_text']}, but the model has "
                f"no signature {signature}; put the export's own file back"
            )
        labels_file = os.path.join(self.path, "assets.extra", LABELS_NAME)
        if self.labels is None:
            if _OF_LABELS & self.outputs:
                raise InputError(f"{labels_file}: no such file, but the model answers labels; put it back")
            return
        shape = outputs["probabilities"].shape if "probabilities" in outputs else None
        if shape is not None and shape.rank and shape[-1] not in (None, len(self.labels)):
            raise InputError(
                f"{labels_file}: has {len(self.labels)} labels, but the model has {shape[-1]} outputs; put the "
                "export's own file back"
            )

    def _read_record(self) -> Record:
        path = os.path.join(self.path, RECORD_FILE)
        if not files.exists(path):
            raise InputError(
                f"{path}: is missing, and with it how text is read; export the model with export_saved_model.py"
            )
        content = reading.read_json(path)
        kinds = {"task_name": str, "family": str, "settings": dict, "flags": dict, "versions": dict}
        record = Record(**{name: field(content, name, kinds[name], path) for name in Record._fields})
        _check_settings(record.settings, f"{path}: settings")
        return record


def _check_settings(settings: dict[str, Any], where: str):
    """Checks the types of the settings that every client needs, and of those that the flags of predict.py replace."""
    for name, kind in _SETTINGS.items():
        if name != "strip_accents" or settings.get(name) is not None:
            field(settings, name, kind, where)
    settings.setdefault("strip_accents", None)
    if settings["max_seq_length"] < 1:
        raise InputError(f"{where}: max_seq_length must be positive; export the model anew")
    for name, hint in typing.get_type_hints(PredictorOptions).items():
        value, kind = settings.get(name), typing.get_args(hint)[:1]
        if value is None or not kind:
            continue
        if kind == (float,) and (value == AUTO or isinstance(value, float)):  # a float may be infinite
            continue
        if not is_of_kind(value, kind[0]) or (kind == (int,) and value < 0):
            raise InputError(f"{where}: {name} is {value!r}, which the flag does not accept; export it anew")


def is_export(model_dir: str) -> bool:
    """Tells whether a folder is a version, or a folder of versions."""
    return _is_version(model_dir) or (files.is_folder(model_dir) and bool(versions(model_dir)))


def _is_version(folder: str) -> bool:
    return files.exists(os.path.join(folder, "saved_model.pb"))


def _version_folder(model_dir: str) -> str:
    if not is_export(model_dir):
        raise InputError(
            f"--model={model_dir}: holds no model; name an --export_dir, a version in it, or the --output_dir of a "
            "training script"
        )
    return model_dir if _is_version(model_dir) else os.path.join(model_dir, str(versions(model_dir)[-1]))


def _register_text_ops(path: str):
    try:
        importlib.import_module("official_bert.graph_text.tokenizer")
    except ImportError as error:
        raise InputError(
            f"{path}: reads raw text, which needs tensorflow-text, and that cannot be imported ({error}); install "
            "requirements.txt"
        ) from error


@contextlib.contextmanager
def _quiet():
    """Suppresses TensorFlow's warnings that an export has no gradients, which no export needs."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0]
