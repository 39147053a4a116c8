"""The optimizer, its learning rate schedule, and the treatment of gradients before the update.

OPTIMIZERS and SCHEDULES are what the flags choose from, by the names in options/training.py.
"""

import functools
from typing import Any

from official_bert.io.errors import no_attribute
from official_bert.optimization.adam import (
    EXCLUDED_FROM_DECAY,
    AdamWeightDecayOptimizer,
    clip_by_global_norm,
    clip_scale,
    dense_gradients,
)
from official_bert.optimization.keras_optimizer import KerasAdamWeightDecay, keras_optimizer
from official_bert.optimization.lamb import LambOptimizer
from official_bert.optimization.schedules import SCHEDULES, Schedule, WarmupLinearDecay, choose

# In the order of options/training.py; the first is the original's.
OPTIMIZERS = {
    "adamw": AdamWeightDecayOptimizer,
    "adamw_bias_correction": functools.partial(AdamWeightDecayOptimizer, bias_correction=True),
    "lamb": LambOptimizer,
}


def __getattr__(name: str):
    raise no_attribute(__name__, name)  # such as create_optimizer


__all__ = [
    "EXCLUDED_FROM_DECAY",
    "OPTIMIZERS",
    "SCHEDULES",
    "AdamWeightDecayOptimizer",
    "KerasAdamWeightDecay",
    "LambOptimizer",
    "Schedule",
    "WarmupLinearDecay",
    "clip_by_global_norm",
    "clip_scale",
    "dense_gradients",
    "keras_optimizer",
    "make_optimizer",
]


def make_optimizer(
    options: Any, num_train_steps: int, num_warmup_steps: int
) -> AdamWeightDecayOptimizer:
    """Returns the optimizer that the flags choose.

    Args:
        options: an instance of a class with the fields of OptimizationOptions and `learning_rate`.
        num_train_steps: the number of updates, with those of earlier runs.
        num_warmup_steps: the number of updates during which the learning rate warms up.
    """
    schedule_class = choose(SCHEDULES, "lr_schedule", options.lr_schedule)
    optimizer_class = choose(OPTIMIZERS, "optimizer_type", options.optimizer_type)
    schedule = schedule_class(options.learning_rate, num_train_steps, num_warmup_steps)
    return optimizer_class(
        schedule,
        weight_decay_rate=options.weight_decay_rate,
        beta_1=options.adam_beta1,
        beta_2=options.adam_beta2,
        epsilon=options.adam_epsilon,
        exclude_from_weight_decay=EXCLUDED_FROM_DECAY,
        ema_decay=options.ema_decay,
    )
