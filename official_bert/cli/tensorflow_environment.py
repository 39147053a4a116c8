"""Environment variables that TensorFlow reads when it is imported, for commands that train.

A value that the user has set always stays.
"""

import os
import pathlib
from typing import Any

from official_bert.io import files
from official_bert.io.processor import instruction_sets

ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
XLA_FLAGS = "XLA_FLAGS"
NVIDIA_DEVICE = pathlib.Path("/dev/nvidiactl")  # exists if Linux has loaded NVIDIA's driver
_TUNING_FLAG = "--xla_gpu_per_fusion_autotune_cache_dir"
_TUNING_FOLDER = "xla_autotuning"  # in the output folder


def prepare_for_training(options: Any) -> None:
    """Set the variables of a command that trains. Call it before the import of TensorFlow.

    Args:
        options: the options of the command. Those of trainings have `do_train`.
    """
    if getattr(options, "do_train", False):
        _enable_onednn()
        if options.jit_compile and NVIDIA_DEVICE.exists():
            _keep_tuning_results(options.output_dir)


def _enable_onednn():
    """Enables oneDNN on processors with AVX2 and without AVX-512.

    TensorFlow enables it on processors with AVX-512 only. Trainings with AVX2 are faster with it,
    too: docs/reports/training_step.md has the measurements.
    """
    instructions = instruction_sets()
    if "avx2" in instructions and "avx512f" not in instructions:
        os.environ.setdefault(ONEDNN, "1")


def _keep_tuning_results(output_dir: str):
    """Lets XLA keep the fastest kernels that it finds, so that a resumed training need not search.

    The search takes most of the two minutes that XLA needs for a large model on a GPU.
    """
    flags = os.environ.get(XLA_FLAGS, "")
    if _TUNING_FLAG not in flags and not files.is_remote(output_dir):
        folder = os.path.join(os.path.abspath(output_dir), _TUNING_FOLDER)
        os.environ[XLA_FLAGS] = f"{flags} {_TUNING_FLAG}={folder}".strip()
