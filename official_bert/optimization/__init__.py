"""The optimizer, its learning rate schedule, and the treatment of gradients before the update."""

from official_bert.optimization.adam import (
    EXCLUDED_FROM_DECAY,
    AdamWeightDecayOptimizer,
    clip_by_global_norm,
    dense_gradients,
)
from official_bert.optimization.keras_optimizer import KerasAdamWeightDecay, keras_optimizer
from official_bert.optimization.lamb import LambOptimizer
from official_bert.optimization.schedules import WarmupLinearDecay

__all__ = [
    "EXCLUDED_FROM_DECAY",
    "AdamWeightDecayOptimizer",
    "KerasAdamWeightDecay",
    "LambOptimizer",
    "WarmupLinearDecay",
    "clip_by_global_norm",
    "dense_gradients",
    "keras_optimizer",
]
