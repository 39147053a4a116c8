"""The schedule of the weights of the FLOPS loss: a plugin of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from official_bert.config import BertConfig
from official_bert.extensions.sparse.options import SPARSE
from official_bert.fine_tuning.plugin import TrainingPlugin
from official_bert.tasks.base import TrainableTask

if TYPE_CHECKING:
    from official_bert.options.training import TrainingOptions
    from official_bert.training.step import Objective
    from official_bert.training.trainer import Trainer


class FlopsSchedule(TrainingPlugin):
    """Connects the objective of a sparse model with the number of updates of its training."""

    def __init__(self, options: TrainingOptions, config: BertConfig, task: TrainableTask):
        self._is_sparse = getattr(options, "task_name", None) == SPARSE
        self._trainer: Any = None

    def check_weights(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def wrap_objective(self, objective: Objective) -> Objective:
        if not self._is_sparse:
            return objective
        from official_bert.extensions.sparse.task import SparseObjective

        # Another plugin may have wrapped the objective of the task.
        assert isinstance(objective, SparseObjective)
        trainer = self._trainer
        objective.follow(trainer.optimizer.global_step, trainer.num_train_steps)
        return objective
