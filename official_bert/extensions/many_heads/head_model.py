"""One head of an opened export, which answers as an export of its own.

In a call of all heads, its outputs come from a computation that the heads share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from official_bert.extensions.many_heads.head_records import (
    FIRST_TEXT,
    SECOND_TEXT,
    HeadRecord,
    has_heads,
    read_head_records,
)
from official_bert.extensions.many_heads.shared_outputs import current_outputs
from official_bert.features import EncodedSet
from official_bert.io.errors import InputError
from official_bert.serving.exported_model import DEFAULT, TEXT_SIGNATURE
from official_bert.serving.model import BatchedModel
from official_bert.tasks.clients import Row


class HeadModel(BatchedModel):
    """One head of an opened export."""

    def __init__(self, export: Any, name: str, head: HeadRecord):
        """Makes the view of a head.

        Args:
            export: the opened export.
            name: the name of the head.
            head: its record.
        """
        super().__init__(export.batch_size)
        self._export = export
        self._name = name
        self._prefix = f"{name}/"
        self.path = export.path
        self.record = head.record
        self.tokenizer = export.tokenizer
        self.labels = head.labels
        signatures = [DEFAULT, TEXT_SIGNATURE] if self.reads_text else [DEFAULT]
        # A SavedModel has a signature of the head. Other files compute all heads.
        self._has_signature = name in export.inputs
        self._targets = {each: name if self._has_signature else each for each in signatures}
        self.inputs = {each: export.inputs[target] for each, target in self._targets.items()}
        self.functions: Mapping[str, Any] = {}
        if self._has_signature:
            functions = export.functions
            self.functions = {each: functions[target] for each, target in self._targets.items()}
        self.outputs = set(self.select_outputs(dict.fromkeys(export.outputs)))

    def select_outputs(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Selects the outputs of the head.

        Args:
            outputs: the outputs of all heads, such as `intent/label`.

        Returns:
            Those of the head, such as `label`.
        """
        return {
            output.removeprefix(self._prefix): value
            for output, value in outputs.items()
            if output.startswith(self._prefix)
        }

    def __call__(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs a signature; see `OpenedExport.__call__`."""
        self._check_signature(signature)
        outputs = self._export(self._targets[signature], inputs)
        return outputs if self._has_signature else self.select_outputs(outputs)

    def run(
        self, encoded: EncodedSet, signature: str = DEFAULT, pads_to_longest: bool = True
    ) -> dict[str, np.ndarray]:
        """Runs a signature of tensors on every example of a set; see `BatchedModel.run`."""
        self._check_signature(signature)
        shared = current_outputs()
        # Outputs of tokens that are padding depend on the length of a batch.
        if shared is None or not pads_to_longest:
            return super().run(encoded, signature, pads_to_longest)
        return self.select_outputs(shared.run(encoded))

    def run_texts(
        self, texts: Mapping[str, Sequence], signature: str = TEXT_SIGNATURE
    ) -> list[Row]:
        """Runs a signature of text on every request; see `BatchedModel.run_texts`.

        Args:
            texts: the texts of all requests by the names that the task of the head gives them.
            signature: the name of the signature.
        """
        self._check_signature(signature)
        columns = list(texts.values())
        shared = current_outputs()
        if shared is not None:
            return [self.select_outputs(row) for row in shared.find_texts(columns)]
        # A file of all heads may read a second text, which this head does not.
        first, second = [*columns, [""] * len(columns[0])][:2]
        return super().run_texts({FIRST_TEXT: first, SECOND_TEXT: second}, signature)

    def _check_signature(self, signature: str):
        if signature not in self._targets:
            raise InputError(
                f"{self.path}: the head {self._name} has no signature {signature}; export its "
                "model with official-bert export_saved_model"
            )


def choose_head(model: BatchedModel, settings: Mapping[str, Any]) -> BatchedModel:
    """Returns the head that the setting `head` of Predictor names; without it, the model.

    Args:
        model: the opened model.
        settings: the settings that extensions add to Predictor, by name.

    Raises:
        InputError: the model has no such head.
    """
    name = settings.get("head")
    if name is None:
        return model
    if not has_heads(model):
        raise InputError(
            f"head={name}: {model.path} is a model of {model.record.task_name} alone; leave it out"
        )
    heads = read_head_records(model)
    if name not in heads:
        raise InputError(f"head={name}: {model.path} has the heads {', '.join(heads)}; name one")
    return HeadModel(model, name, heads[name])
