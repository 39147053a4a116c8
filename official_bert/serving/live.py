"""Runs a trained model without an export: the signatures that an export of it would have.

In: the folder of a model. Out: `LiveModel`, which Predictor uses like a `LoadedModel`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from official_bert.errors import InputError, brief
from official_bert.options.export import ExportOptions
from official_bert.serving import from_checkpoint
from official_bert.serving.saved_model import record_of, task_signatures


class LiveModel:
    """A model in memory with the signatures of an export of tensors.

    Attributes:
        path: the folder of the model.
        record: the record that an export would have.
        tokenizer: the tokenizer of the model.
        labels: the labels in the order of the outputs; None if the task has none.
        inputs: name of a signature -> the names of its inputs.
        outputs: names of the outputs of `serving_default`.
    """

    def __init__(self, folder: str):
        """Builds the task of the folder and loads its weights.

        Raises:
            InputError: the folder lacks a file of the model, or its files do not fit each other.
        """
        built = from_checkpoint.build(ExportOptions(model=folder, export_dir=""))
        self.path = folder
        self.record = record_of(built.options, built.options.task_name, built.task)
        self.tokenizer = built.tokenizer
        self.labels = list(map(str, built.task.labels)) if built.task.labels else None
        self._signatures = {
            name: signature.get_concrete_function()
            for name, signature in task_signatures(built.task, built.model, built.config).items()
        }
        self.inputs = {
            name: tuple(spec.name for spec in signature.structured_input_signature[0])
            for name, signature in self._signatures.items()
        }
        self.outputs = set(self._signatures["serving_default"].structured_outputs)

    def __call__(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs a signature and returns its outputs; inputs that the signature does not have are ignored.

        Raises:
            InputError: the model refuses the inputs.
        """
        try:
            tensors = [tf.constant(inputs[name]) for name in self.inputs[signature]]
            return {name: value.numpy() for name, value in self._signatures[signature](*tensors).items()}
        except tf.errors.OpError as error:
            raise InputError(f"{self.path}: cannot answer ({brief(error)})") from error
