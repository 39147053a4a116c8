"""A reranker's folder: the files of sentence-transformers' CrossEncoder, or a record of this
project.
"""

from __future__ import annotations

import functools
import json
import os
from typing import Any

from official_bert.checkpoints import sentence_transformers
from official_bert.checkpoints.layout import ModelLayout
from official_bert.extensions.reranking.options import ACTIVATIONS, IDENTITY, RERANKING, SIGMOID
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.model_dir import ModelFolder, TaskRecord
from official_bert.options.fine_tuning import SCORE
from official_bert.tokenizer_files import TOKENIZER_CONFIG_NAME

_CLASSES = {
    SIGMOID: "torch.nn.modules.activation.Sigmoid",
    IDENTITY: "torch.nn.modules.linear.Identity",
}
_CROSS_ENCODER = "CrossEncoder"
_ACTIVATION = "activation_fn"
_NEW_FIELD = "sentence_transformers"  # of config.json, from version 4 on
_OLD_FIELD = "sbert_ce_default_activation_function"


def find_layout(path: str) -> RerankerLayout | None:
    """Return the layout of a reranker.

    Args:
        path: the folder of a model, or its checkpoint.

    Returns:
        The layout; None for another model.
    """
    folder = ModelFolder(path)
    if folder.task_file:
        record = folder.task()
        return RerankerLayout(path) if record and record.family == RERANKING else None
    return CrossEncoderLayout(path) if _find_activation(folder) else None


def read_activation(path: str) -> str | None:
    """Return the activation of a reranker, a name of `ACTIVATIONS`.

    Args:
        path: the folder of a model, or its checkpoint.

    Returns:
        The activation; None for a model that is no reranker.

    Raises:
        InputError: the model has another activation.
    """
    layout = find_layout(path)
    return layout.activation if layout else None


class RerankerLayout(ModelLayout):
    """A reranker that was trained here."""

    @functools.cached_property
    def folder(self) -> ModelFolder:
        """The files beside the checkpoint."""
        return ModelFolder(self.path)

    @property
    def _recorded_settings(self) -> dict[str, Any]:
        record = self.folder.task()
        assert record is not None, "the folder has a task.json"
        return record.settings

    @property
    def activation(self) -> str:
        """What is applied to the logit, a name of `ACTIVATIONS`."""
        return self._recorded_settings["activation"]

    @property
    def max_seq_length(self) -> int:
        """The maximum number of tokens of a pair."""
        return self._recorded_settings["max_seq_length"]

    @property
    def config_fields(self) -> dict[str, Any]:
        return {_NEW_FIELD: {_ACTIVATION: _CLASSES[self.activation]}}

    def write(self, folder: str, hidden_size: int) -> None:
        """Write the maximum number of tokens, to which CrossEncoder truncates a pair.

        Args:
            folder: the folder of the encoder.
            hidden_size: the width of the encoder.
        """
        path = os.path.join(folder, TOKENIZER_CONFIG_NAME)
        if not files.exists(path):  # a model without a vocabulary
            return
        content = reading.read_json(path) | {"model_max_length": self.max_seq_length}
        with writing.replacing(path) as file:
            file.write(json.dumps(content, indent=2))

    def original_record(self, folder: ModelFolder) -> TaskRecord | None:
        return folder.task()


class CrossEncoderLayout(RerankerLayout):
    """A folder of sentence-transformers' CrossEncoder."""

    task_name = RERANKING

    @property
    def activation(self) -> str:
        """What is applied to the logit, a name of `ACTIVATIONS`.

        Raises:
            InputError: another activation is applied, or the texts get a prompt.
        """
        prompt = _read_settings(self.folder).get("default_prompt_name")
        if prompt is not None:
            path = os.path.join(self.folder.path, sentence_transformers.CONFIG_NAME)
            raise InputError(
                f"{path}: default_prompt_name is {prompt!r}, and a reranker here has no prompts; "
                "write null there, and put the prompt before the texts"
            )
        name = str(_find_activation(self.folder)).rpartition(".")[2]
        if name.lower() not in ACTIVATIONS:
            raise InputError(
                f"{self.folder.config_file}: {_ACTIVATION} is {name}, which is not applied to the "
                f"scores here; write {_CLASSES[IDENTITY]} there to use the scores without it, "
                "whose order is the same"
            )
        return name.lower()

    @property
    def max_seq_length(self) -> int:
        positions = reading.read_json(str(self.folder.config_file))["max_position_embeddings"]
        tokenizer = self.folder.tokenizer_config()
        longest = tokenizer.model_max_length if tokenizer else None
        return min(longest or positions, positions)

    @property
    def files(self) -> list[str]:
        return sentence_transformers.list_files(self.path)

    @property
    def config_fields(self) -> dict[str, Any]:
        # Other activations are kept for sentence-transformers, too.
        return {_NEW_FIELD: {_ACTIVATION: _find_activation(self.folder)}}

    def serving_settings(self, folder: ModelFolder) -> dict[str, Any]:
        return {"activation": self.activation, "max_seq_length": self.max_seq_length}

    def original_record(self, folder: ModelFolder) -> TaskRecord:
        return TaskRecord(RERANKING, RERANKING, self.serving_settings(folder))

    def student_record(self, folder: ModelFolder) -> TaskRecord:
        return self.original_record(folder)


def _find_activation(folder: ModelFolder) -> str | None:
    """Returns the class of the activation of a CrossEncoder with one label.

    It is in the settings of version 6, or in config.json. A folder with neither is none of a
    CrossEncoder.
    """
    record = folder.task()
    if record is None or record.settings.get("label_type") != SCORE:
        return None
    settings = _read_settings(folder)
    fields = folder.huggingface_fields(_NEW_FIELD, _OLD_FIELD)
    new_field = fields.get(_NEW_FIELD)
    candidates = [settings.get(_ACTIVATION), fields.get(_OLD_FIELD)]
    if isinstance(new_field, dict):
        candidates.insert(1, new_field.get(_ACTIVATION))
    if settings.get("model_type") == _CROSS_ENCODER:
        candidates.append(_CLASSES[SIGMOID])  # its default for one label
    return next((str(value) for value in candidates if value), None)


def _read_settings(folder: ModelFolder) -> dict[str, Any]:
    """Returns the settings that version 6 of sentence-transformers writes; none of another
    class.
    """
    settings = sentence_transformers.read_settings(folder.path, sentence_transformers.CONFIG_NAME)
    return settings if settings.get("model_type") == _CROSS_ENCODER else {}
