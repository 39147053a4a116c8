"""Writes the summaries of a run after its training and at its evaluations."""

from __future__ import annotations

from official_bert.extensions.tensorboard.summaries import write_confusion, write_hyperparameters
from official_bert.fine_tuning.plugin import Evaluation, TrainingPlugin
from official_bert.training.trainer import Trainer


class TensorBoardPlugin(TrainingPlugin):
    """Writes hyperparameters and confusion matrices as summaries of TensorBoard."""

    def finish(self, trainer: Trainer) -> None:
        """Write the hyperparameters.

        Args:
            trainer: the trainer, whose folder has the scalars of the training.
        """
        write_hyperparameters(trainer.options)

    def read_evaluation(self, evaluation: Evaluation) -> None:
        """Write the confusion matrix.

        Args:
            evaluation: the evaluated set.
        """
        write_confusion(evaluation)
