"""A sparse model: the files of sentence-transformers, or the record of a training here."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from official_bert.checkpoints.layout import ModelLayout
from official_bert.checkpoints.loading import open_checkpoint
from official_bert.extensions.sparse import sparse_folder
from official_bert.extensions.sparse.options import MODEL, SPARSE
from official_bert.extensions.sparse.sparse_folder import QUERY_WEIGHTS, SparseModules
from official_bert.model_dir import ModelFolder, TaskRecord


def find_layout(path: str) -> SparseLayout | None:
    """Return the layout of a sparse model.

    Args:
        path: the folder of a model.

    Returns:
        The layout; None for another model.
    """
    if sparse_folder.has_modules(path):
        return SparseEncoderLayout(path)
    record = ModelFolder(path).task()
    if record and record.family == SPARSE:
        return SparseLayout(path)
    return None


class SparseLayout(ModelLayout):
    """A sparse model that was trained here."""

    @property
    def separate_weights(self) -> tuple[str, ...]:
        """The name of the weights of queries."""
        _ = self.modules  # A wrong file raises InputError before anything is written.
        return (QUERY_WEIGHTS,)

    @functools.cached_property
    def modules(self) -> SparseModules:
        """The way from a text to its weighted words, with the weights of queries."""
        modules = SparseModules.load(self.path)
        if modules.query_encoder != MODEL and modules.query_weights is None:
            weights = open_checkpoint(self.path).read(QUERY_WEIGHTS)
            modules = modules._replace(query_weights=weights)
        return modules

    def write(self, folder: str, hidden_size: int) -> None:
        sparse_folder.write(folder, self.modules)

    def original_weights(self, record: TaskRecord | None) -> dict[str, np.ndarray]:
        weights = self.modules.query_weights
        return {} if weights is None else {QUERY_WEIGHTS: weights}


class SparseEncoderLayout(SparseLayout):
    """A folder of sentence-transformers, whose encoder may be in a subfolder."""

    task_name = SPARSE

    @property
    def encoder(self) -> str:
        return self.modules.encoder

    @property
    def files(self) -> list[str]:
        return sparse_folder.module_files(self.path)

    def serving_settings(self, folder: ModelFolder) -> dict[str, Any]:
        modules = self.modules
        return {
            "term_activation": modules.term_activation,
            "query_encoder": modules.query_encoder,
            "max_terms": modules.max_terms,
            "max_seq_length": modules.max_seq_length,
        }

    def student_record(self, folder: ModelFolder) -> TaskRecord:
        return self.modules.record()

    def original_record(self, folder: ModelFolder) -> TaskRecord:
        return self.modules.record()
