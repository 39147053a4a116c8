"""The folder of an embedding model, of sentence-transformers or of a training here."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from official_bert.checkpoints import sentence_transformers
from official_bert.checkpoints.dense_module import Dense
from official_bert.checkpoints.layout import ModelLayout
from official_bert.extensions.embeddings import sentence_folder
from official_bert.extensions.embeddings.options import EMBEDDING
from official_bert.extensions.embeddings.sentence_folder import (
    COSINE,
    PROJECTION,
    SentenceModules,
)
from official_bert.io import errors
from official_bert.io.errors import InputError
from official_bert.model_dir import ModelFolder, TaskRecord


def find_layout(path: str) -> EmbeddingLayout | None:
    """Return the layout of an embedding model.

    Args:
        path: the folder of a model.

    Returns:
        The layout; None for another model.
    """
    if (
        sentence_transformers.has_modules(path)
        and sentence_transformers.read_model_type(path) == sentence_transformers.SINGLE_VECTOR
    ):
        return SentenceTransformersLayout(path)
    record = ModelFolder(path).task()
    if record and record.family == EMBEDDING:
        return EmbeddingLayout(path)
    return None


class EmbeddingLayout(ModelLayout):
    """An embedding model that was trained here."""

    @functools.cached_property
    def modules(self) -> SentenceModules:
        """The way from a text to its embedding."""
        return SentenceModules.load(self.path)

    @property
    def separate_weights(self) -> tuple[str, ...]:
        """The names of the weights of the projection, which is no part of the encoder."""
        _ = self.modules  # A wrong file raises InputError before anything is written.
        return PROJECTION

    def write(self, folder: str, hidden_size: int) -> None:
        """Write the files of sentence-transformers.

        Args:
            folder: the folder of the encoder.
            hidden_size: the width of the encoder.
        """
        sentence_folder.write(folder, self.modules, hidden_size)

    def original_weights(self, record: TaskRecord | None) -> dict[str, np.ndarray]:
        """Return the weights of the projection by their names in the original's format.

        Args:
            record: the record of the model; None without one.

        Returns:
            The weights; none without a projection.
        """
        if record is None or not record.settings.get("projection"):
            return {}
        dense = next(layer for layer in self.modules.layers if isinstance(layer, Dense))
        return dict(zip(PROJECTION, (dense.kernel.T, dense.bias), strict=True))


class SentenceTransformersLayout(EmbeddingLayout):
    """A folder of sentence-transformers, whose encoder may be in a subfolder."""

    task_name = EMBEDDING

    @property
    def encoder(self) -> str:
        return sentence_transformers.find_encoder(self.path)

    @property
    def files(self) -> list[str]:
        return sentence_transformers.list_files(self.path)

    def serving_settings(self, folder: ModelFolder) -> dict[str, Any]:
        modules = self.modules
        if rules := modules.rules_without_field(folder.tokenizer_config()):
            raise InputError(
                f"{self.path}: has {rules[0]}, which exports do not support; use SentenceEncoder"
            )
        if modules.similarity != COSINE and not modules.is_normalized:
            errors.warn(
                "%s: similarity_fn_name is %s, but searches and comparisons here compute the "
                "cosine; compare the vectors yourself",
                self.path,
                modules.similarity,
            )
        return {
            "pooling": modules.pooling,
            "normalize": bool(modules.layers),
            "max_seq_length": modules.max_seq_length,
        }

    def student_record(self, folder: ModelFolder) -> TaskRecord:
        modules = self.modules
        if modules.lowers_beside(folder.tokenizer_config()):
            raise InputError(
                f"{self.path}: has do_lower_case with a cased tokenizer, which is not supported "
                "for teachers; give another model"
            )
        for rule in modules.rules_without_field(None):
            errors.warn("%s: has %s, which the student lacks", self.path, rule)
        return modules.record()

    def original_record(self, folder: ModelFolder) -> TaskRecord:
        if record := folder.task():  # of a folder that was converted from a training
            return record
        modules = self.modules
        rules = modules.rules_without_field(folder.tokenizer_config())
        if modules.similarity != COSINE and not modules.is_normalized:
            rules.append(f"similarity_fn_name={modules.similarity}")
        if rules:
            raise InputError(
                f"{self.path}: has {rules[0]}, for which only folders of Hugging Face have a file; "
                "give --output_format=huggingface"
            )
        return modules.record()
