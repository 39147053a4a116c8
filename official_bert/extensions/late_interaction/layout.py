"""A model of late interaction: the files of sentence-transformers, or the record of a training."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from official_bert.checkpoints import sentence_transformers
from official_bert.checkpoints.layout import ModelLayout
from official_bert.checkpoints.loading import open_checkpoint
from official_bert.extensions.late_interaction import multi_vector_folder
from official_bert.extensions.late_interaction.multi_vector_folder import (
    KERNEL,
    MultiVectorModules,
)
from official_bert.extensions.late_interaction.options import LATE_INTERACTION
from official_bert.io.errors import InputError
from official_bert.model_dir import ModelFolder, TaskRecord


def find_layout(path: str) -> LateInteractionLayout | None:
    """Return the layout of a model of late interaction.

    Args:
        path: the folder of a model.

    Returns:
        The layout; None for another model.
    """
    if multi_vector_folder.has_modules(path):
        return MultiVectorEncoderLayout(path)
    record = ModelFolder(path).task()
    if record and record.family == LATE_INTERACTION:
        return LateInteractionLayout(path)
    return None


class LateInteractionLayout(ModelLayout):
    """A model of late interaction that was trained here."""

    @functools.cached_property
    def modules(self) -> MultiVectorModules:
        """The way from a text to the vectors of its tokens, with the projection."""
        modules = MultiVectorModules.load(self.path)
        if modules.kernel is None:
            modules = modules._replace(kernel=open_checkpoint(self.path).read(KERNEL))
        return modules

    @property
    def separate_weights(self) -> tuple[str, ...]:
        """The name of the weights of the projection."""
        _ = self.modules  # A wrong file raises InputError before anything is written.
        return (KERNEL,)

    def write(self, folder: str, hidden_size: int) -> None:
        multi_vector_folder.write(folder, self.modules)

    def original_weights(self, record: TaskRecord | None) -> dict[str, np.ndarray]:
        assert self.modules.kernel is not None
        return {KERNEL: self.modules.kernel}


class MultiVectorEncoderLayout(LateInteractionLayout):
    """A folder of sentence-transformers."""

    task_name = LATE_INTERACTION

    @property
    def encoder(self) -> str:
        return self.modules.encoder

    @property
    def files(self) -> list[str]:
        return sentence_transformers.list_files(self.path)

    def serving_settings(self, folder: ModelFolder) -> dict[str, Any]:
        raise InputError(
            f"{self.path}: has its projection in a file of its own; convert the folder with "
            "official-bert convert_checkpoint --output_format=tf1 first"
        )

    def student_record(self, folder: ModelFolder) -> TaskRecord:
        return self.modules.record()

    def original_record(self, folder: ModelFolder) -> TaskRecord:
        return self.modules.record()
