"""A plugin of a training: the schedule of the FLOPS losses, and a check of the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from official_bert.config import BertConfig
from official_bert.extensions.sparse.options import SPARSE
from official_bert.extensions.sparse.sparse_folder import HEAD_WEIGHT
from official_bert.fine_tuning.plugin import TrainingPlugin
from official_bert.io.errors import InputError
from official_bert.tasks.base import TrainableTask

if TYPE_CHECKING:
    from official_bert.options.training import TrainingOptions
    from official_bert.training.step import Objective
    from official_bert.training.trainer import Trainer


class FlopsSchedule(TrainingPlugin):
    """Passes the number of updates of a training to the objective of a sparse model."""

    def __init__(self, options: TrainingOptions, config: BertConfig, task: TrainableTask):
        self._options: Any = options
        self._is_sparse = getattr(options, "task_name", None) == SPARSE
        self._trainer: Any = None

    def check_weights(self, trainer: Trainer) -> None:
        self._trainer = trainer
        options = self._options
        if not self._is_sparse or not options.init_checkpoint or options.allow_missing_weights:
            return
        if HEAD_WEIGHT not in trainer.loaded:
            raise InputError(
                f"{options.init_checkpoint}: has no {HEAD_WEIGHT}, the head of a masked LM, which "
                "sparse embeddings need; give a masked LM, or --allow_missing_weights to train a "
                "new head"
            )

    def wrap_objective(self, objective: Objective) -> Objective:
        if not self._is_sparse:
            return objective
        from official_bert.extensions.sparse.task import SparseObjective

        trainer = self._trainer
        # A training on several sets has the objective of each.
        for member in getattr(objective, "members", (objective,)):
            assert isinstance(member, SparseObjective)
            member.follow(trainer.optimizer.global_step, trainer.num_train_steps)
        return objective
