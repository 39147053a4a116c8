"""Describes what the folder of a model contains in addition to its encoder.

In: the path of a model. Out: a `ModelLayout`, as `find_layout` returns it. The class itself is the
layout of this project, the original and transformers. Extensions have the layouts of other
libraries: their hook `model_layout` returns an instance of a subclass.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from official_bert import catalog
from official_bert.model_dir import ModelFolder, TaskRecord


class ModelLayout:
    """A model all of whose files are in one folder, with task.json or config.json for its task.

    Attributes:
        path: the checkpoint, or the folder of the model.
        task_name: the task of the model if another library's file names it; None otherwise.
    """

    task_name: str | None = None

    def __init__(self, path: str):
        self.path = path

    @property
    def encoder(self) -> str:
        """The checkpoint of the encoder, or its folder."""
        return self.path

    def serving_settings(self, folder: ModelFolder) -> dict[str, Any]:
        """Returns the settings of the task, by flag name, for flags that are not typed.

        Args:
            folder: the folder of the model.

        Raises:
            InputError: an export cannot compute what the model computes.
        """
        return {}

    def student_record(self, folder: ModelFolder) -> TaskRecord | None:
        """Returns the record for a model with fewer layers; None for a model without a task.

        Args:
            folder: the folder of the model.

        Raises:
            InputError: a model with fewer layers cannot be written.
        """
        return folder.task()

    # The members for a conversion to the format of transformers, and for a larger vocabulary.

    @property
    def separate_weights(self) -> tuple[str, ...]:
        """The TF1 names of the weights that `write` puts into files of their own."""
        return ()

    @property
    def config_fields(self) -> dict[str, Any]:
        """Further fields of config.json, by which another library computes the same outputs."""
        return {}

    @property
    def files(self) -> list[str]:
        """The names of the files and folders that another library reads beside the encoder."""
        return []

    def write(self, folder: str, hidden_size: int) -> None:
        """Writes the files that another library reads beside the encoder.

        Args:
            folder: the folder of the encoder.
            hidden_size: the width of the encoder.
        """

    # The members for a conversion to the format of the original.

    def original_record(self, folder: ModelFolder) -> TaskRecord | None:
        """Returns the record of the model for its new folder; None for a model without a task.

        Args:
            folder: the folder of the model.

        Raises:
            InputError: the format has no file for what the model computes.
        """
        folder.check_activation()
        return folder.task()

    def original_weights(self, record: TaskRecord | None) -> dict[str, np.ndarray]:
        """Returns the weights that the encoder's checkpoint does not have, by TF1 name.

        Args:
            record: the record of the model; None for a model without a task.
        """
        return {}


def find_layout(path: str) -> ModelLayout:
    """Returns the layout of a model.

    Args:
        path: the folder of the model, or its checkpoint.
    """
    layouts = (hook(path) for hook in catalog.hooks("model_layout"))
    return next(filter(None, layouts), ModelLayout(path))
