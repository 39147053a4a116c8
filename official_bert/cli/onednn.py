"""Chooses oneDNN for trainings on processors with AVX2 and without AVX-512.

TensorFlow uses oneDNN by default on processors with AVX-512 only. Trainings with AVX2 are faster
with it, too, and predictions of single texts are not: docs/reports/training_step.md has the
measurements.
"""

import os
from typing import Any

from official_bert.io.processor import instruction_sets

VARIABLE = "TF_ENABLE_ONEDNN_OPTS"


def enable_for_training(options: Any) -> None:
    """Let TensorFlow use oneDNN if a command trains and the processor gains from it.

    Call it before the import of TensorFlow, which reads the variable once. A value of the
    environment stays.

    Args:
        options: the options of the command. Those of trainings have `do_train`.
    """
    if getattr(options, "do_train", False):
        instructions = instruction_sets()
        if "avx2" in instructions and "avx512f" not in instructions:
            os.environ.setdefault(VARIABLE, "1")
