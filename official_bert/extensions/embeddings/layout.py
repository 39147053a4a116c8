"""A model of embeddings: the files of sentence-transformers, or the record of a training here."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from absl import logging

from official_bert.checkpoints.layout import ModelLayout
from official_bert.extensions.embeddings import sentence_folder
from official_bert.extensions.embeddings.options import EMBEDDING
from official_bert.extensions.embeddings.sentence_folder import (
    COSINE,
    PROJECTION,
    Dense,
    SentenceModules,
)
from official_bert.io import errors
from official_bert.io.errors import InputError
from official_bert.model_dir import ModelFolder, TaskRecord


def find_layout(path: str) -> EmbeddingLayout | None:
    """Returns the layout of a model of embeddings; None for another model."""
    if sentence_folder.has_modules(path):
        return SentenceTransformersLayout(path)
    record = ModelFolder(path).task()
    return EmbeddingLayout(path) if record and record.family == EMBEDDING else None


class EmbeddingLayout(ModelLayout):
    """A model of embeddings that was trained here."""

    @functools.cached_property
    def modules(self) -> SentenceModules:
        """The way from a text to its embedding."""
        return SentenceModules.of(self.path)

    @property
    def separate_weights(self) -> tuple[str, ...]:
        _ = self.modules  # raises InputError for a wrong file before anything is written
        return PROJECTION

    def write(self, folder: str, hidden_size: int):
        sentence_folder.write(folder, self.modules, hidden_size)

    def original_weights(self, record: TaskRecord | None) -> dict[str, np.ndarray]:
        if record is None or not record.settings.get("projection"):
            return {}
        dense = next(layer for layer in self.modules.layers if isinstance(layer, Dense))
        return dict(zip(PROJECTION, (dense.kernel.T, dense.bias), strict=True))


class SentenceTransformersLayout(EmbeddingLayout):
    """A folder of sentence-transformers, whose encoder may be in a subfolder."""

    task_name = EMBEDDING

    @property
    def encoder(self) -> str:
        return sentence_folder.encoder_folder(self.path)

    @property
    def files(self) -> list[str]:
        return sentence_folder.module_files(self.path)

    def serving_settings(self, folder: ModelFolder) -> dict[str, Any]:
        modules = self.modules
        if rules := modules.rules_without_field(folder.tokenizer_config()):
            raise InputError(
                f"{self.path}: has {rules[0]}, which SentenceEncoder reads and an export does not"
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
                f"{self.path}: has do_lower_case beside a cased tokenizer, which a student cannot "
                "keep"
            )
        for rule in modules.rules_without_field(None):
            errors.warn("%s: has %s, which the student lacks", self.path, rule)
        return modules.record()

    def original_record(self, folder: ModelFolder) -> TaskRecord:
        modules = self.modules
        rules = modules.rules_without_field(folder.tokenizer_config())
        if modules.similarity != COSINE and not modules.is_normalized:
            rules.append(f"similarity_fn_name={modules.similarity}")
        if rules:
            raise InputError(
                f"{self.path}: has {rules[0]}, for which only folders of Hugging Face have a file; "
                "give --output_format=huggingface"
            )
        prompts = [f"{name} ({prompt!r})" for name, prompt in modules.prompts.items() if prompt]
        if prompts:
            logging.warning(
                "Left out, since the original's format has no file for them: the prompts %s; put "
                "them before the texts",
                ", ".join(prompts),
            )
        return modules.record()
