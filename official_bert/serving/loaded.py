"""Loads an exported model: its signatures as functions of numpy arrays, and the files that it contains.

In: a version's folder, or the folder of versions. Out: `LoadedModel`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert import files
from official_bert.errors import InputError
from official_bert.serving.export import versions
from official_bert.tasks.base import LABELS_FILE

RECORD_FILE = "assets.extra/export.json"


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
        labels: the labels in the order of the outputs; None if the task has none.
        inputs: name of a signature -> the names of its inputs.
        outputs: names of the outputs of `serving_default`.
    """

    def __init__(self, model_dir: str):
        """Loads a model.

        Args:
            model_dir: a version's folder, or a folder of versions, of which the newest is loaded.

        Raises:
            InputError: the folder has no model, or one that this package did not export.
        """
        self.path = _version_folder(model_dir)
        self.record = self._read_record()
        labels = os.path.join(self.path, "assets.extra", LABELS_FILE)
        self.labels = list(files.read_lines(labels)) if files.exists(labels) else None
        if self.record.settings["export_text"]:
            _register_text_ops(self.path)
        try:
            with _quiet():
                model = tf.saved_model.load(self.path)
        except (OSError, ValueError, tf.errors.OpError) as error:
            raise InputError(
                f"{self.path}: is no complete SavedModel ({_first_line(error)}); export it anew"
            ) from error
        self._signatures = model.signatures
        self.inputs = {
            name: tuple(function.structured_input_signature[1]) for name, function in self._signatures.items()
        }
        self.outputs = set(self._signatures["serving_default"].structured_outputs)

    @property
    def vocab_file(self) -> str:
        """The path of the vocabulary."""
        return os.path.join(self.path, "assets", "vocab.txt")

    def __call__(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs a signature and returns its outputs.

        Args:
            signature: its name.
            inputs: arrays by name; those that the signature does not have are ignored.
        """
        tensors = {name: tf.constant(inputs[name]) for name in self.inputs[signature]}
        return {name: value.numpy() for name, value in self._signatures[signature](**tensors).items()}

    def _read_record(self) -> Record:
        path = os.path.join(self.path, RECORD_FILE)
        if not files.exists(path):
            raise InputError(
                f"{path}: is missing, and with it how text is read; export the model with export_saved_model.py"
            )
        content = files.read_json(path)
        missing = [name for name in Record._fields if name not in content]
        if missing:
            raise InputError(f"{path}: lacks {', '.join(missing)}; export the model anew with this version")
        return Record(**{name: content[name] for name in Record._fields})


def _version_folder(model_dir: str) -> str:
    if files.exists(os.path.join(model_dir, "saved_model.pb")):
        return model_dir
    found = versions(model_dir) if files.is_folder(model_dir) else []
    if not found:
        raise InputError(
            f"--model_dir={model_dir}: holds no exported model; name an --export_dir or a version in it"
        )
    return os.path.join(model_dir, str(found[-1]))


def _register_text_ops(path: str):
    try:
        importlib.import_module("official_bert.data.text.graph_tokenizer")
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
    return str(error).strip().split("\n")[0]
