"""A task that predicts the most frequent label of its training set, without a model.

Devlin et al. (2019), appendix B.1: no trained system had beaten this baseline on WNLI, so the paper
submitted it.
"""

from __future__ import annotations

import collections
from typing import Any, Self

import numpy as np
from absl import logging

from official_bert.io.errors import InputError
from official_bert.tasks.base import DataFiles
from official_bert.tasks.classification.examples import EncodedExamples, InputExample
from official_bert.tasks.classification.processor import DataProcessor
from official_bert.tasks.classification.settings import ClassificationSettings
from official_bert.tasks.classification.task import ClassificationTask


class MajorityTask(ClassificationTask):
    """Predicts one label for all test examples; files and submission are those of the GLUE task."""

    predicts_without_model = True
    _majority = ""

    @classmethod
    def from_settings(cls, variant: type[DataProcessor], settings: ClassificationSettings) -> Self:
        if settings.do_train or settings.values.get("do_eval"):
            raise InputError(
                f"--task_name={settings.task_name}: runs no model; leave --do_train and --do_eval "
                "out, and give --do_predict"
            )
        return super().from_settings(variant, settings)

    def read(self, data_files: DataFiles, set_name: str) -> dict[str, list[InputExample]]:
        """Reads a set; before a test set also the training set, for its most frequent label.

        Args:
            data_files: the location of the files.
            set_name: the set: test, or train.
        """
        if set_name == "test":
            (examples,) = self.read(data_files, "train").values()
            counts = collections.Counter(example.label for example in examples)
            ((self._majority, count),) = counts.most_common(1)
            logging.info(
                "%d of %d training examples have the label %s", count, len(examples), self._majority
            )
        return super().read(data_files, set_name)

    def write_predictions(
        self,
        output_dir: str,
        encoded: EncodedExamples,
        outputs: dict[str, Any],
        suffix: str = "",
    ) -> None:
        """Writes the files of run_classifier, in which the most frequent label has probability 1.

        Args:
            output_dir: the folder of the files.
            encoded: the set.
            outputs: not read.
            suffix: the suffix of the set in the names of the files.
        """
        is_majority = [label == self._majority for label in self._label_names]
        probabilities = np.tile(np.array(is_majority, np.float32), (len(encoded.lengths), 1))
        super().write_predictions(output_dir, encoded, {"probabilities": probabilities}, suffix)
