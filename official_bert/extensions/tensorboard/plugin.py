"""Writes the summaries of a run at its start and at its evaluations."""

from __future__ import annotations

from collections.abc import Mapping

from official_bert.extensions.tensorboard.summaries import write_confusion, write_hyperparameters
from official_bert.fine_tuning.plugin import Evaluation, TrainingPlugin, TrainingRun


class TensorBoardPlugin(TrainingPlugin):
    """Writes hyperparameters and confusion matrices as summaries of TensorBoard."""

    def prepare(self, run: TrainingRun) -> Mapping[str, object]:
        """Write the hyperparameters, which need no field in run.jsonl.

        Args:
            run: the training.
        """
        write_hyperparameters(run.options)
        return {}

    def read_evaluation(self, evaluation: Evaluation) -> None:
        """Write the confusion matrix.

        Args:
            evaluation: the evaluated set.
        """
        write_confusion(evaluation)
