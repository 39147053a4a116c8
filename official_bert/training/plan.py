"""What is trained, from where, and for how long: the plan that a `Trainer` follows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import keras


@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightPlan:
    """Which weights are trained, and how.

    Attributes:
        frozen: name prefixes of weights that stay as they are: no gradient, no slots, no decay.
        redrawn: name prefixes of weights that start with random values.
        rate_factor: a function from the name of a weight to the factor of its learning rate; None
            for the same rate everywhere.
    """

    frozen: tuple[str, ...] = ()
    redrawn: tuple[str, ...] = ()
    rate_factor: Callable[[str], float] | None = None

    def combine(self, other: WeightPlan) -> WeightPlan:
        """Returns a plan with the prefixes of both, and the product of their factors.

        Args:
            other: the plan to add.
        """
        factors = [plan.rate_factor for plan in (self, other) if plan.rate_factor]

        def rate_factor(name: str) -> float:
            return math.prod(factor(name) for factor in factors)

        return WeightPlan(
            frozen=self.frozen + other.frozen,
            redrawn=self.redrawn + other.redrawn,
            rate_factor=rate_factor if factors else None,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainPlan:
    """A training, or the use of a trained model.

    Attributes:
        run_dir: the folder of the checkpoints, which the chief writes and all workers read.
        build_model: makes the model with its initial weights.
        num_train_steps: the number of updates, with those of earlier runs.
        num_warmup_steps: the number of updates during which the learning rate warms up.
        weights: which weights are trained, and how.
        stop_at_step: the number of updates after which this run ends, although the learning rate is
            that of `num_train_steps`; None for `num_train_steps`.
        example_flops: the operations of the matrix products of an update for each example, as
            `flops.training_flops` counts them; None if they are unknown.
        max_train_hours: the hours after which the training ends, if it does not end before.
        reads_worker_files: whether each worker reads records of its own, and saves its position in
            them.
    """

    run_dir: str
    build_model: Callable[[], keras.Model]
    num_train_steps: int
    num_warmup_steps: int
    weights: WeightPlan = WeightPlan()
    stop_at_step: int | None = None
    example_flops: int | None = None
    max_train_hours: float | None = None
    reads_worker_files: bool = False
