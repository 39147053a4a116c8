"""Reads and writes checkpoints: those of TF1, of Hugging Face, and of a training run.

All weights are read and written under the names of the original's variables.
"""

from official_bert.checkpoints.folder import BEST_FOLDER
from official_bert.checkpoints.loading import (
    LoadReport,
    load_checkpoint,
    log_trainable_variables,
    named_variables,
    open_checkpoint,
)
from official_bert.checkpoints.manager import CheckpointManager

__all__ = [
    "BEST_FOLDER",
    "CheckpointManager",
    "LoadReport",
    "load_checkpoint",
    "log_trainable_variables",
    "named_variables",
    "open_checkpoint",
]
