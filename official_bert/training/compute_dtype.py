"""Chooses the type that a model computes in, and warns of one that the devices are slow with.

In: the flag --dtype and the devices. Out: the type, and what the run record keeps of the choice.
"""

from __future__ import annotations

import pathlib

import tensorflow as tf
from absl import logging

from official_bert.options.precision import AUTO, BFLOAT16, FLOAT32
from official_bert.training import workers
from official_bert.training.devices import kind_of_device

DTYPE_KEY = "dtype"  # in runs.jsonl
_CPU_INFO = pathlib.Path("/proc/cpuinfo")
_CPU_SIGNS = {"amx_bf16": "AMX", "avx512_bf16": "AVX512_BF16"}  # flags of Linux; the name of the instructions
_GPU_CAPABILITY = 8, 0  # of the first NVIDIA GPUs that multiply bfloat16


def choose(dtype: str, strategy: tf.distribute.Strategy) -> tuple[str, dict[str, object]]:
    """Returns the type of the matrix products for a value of --dtype, and facts for the run record."""
    if dtype == AUTO:
        reason = reason_for_bfloat16(strategy)
        # The workers of a run compute in one type: the chief's.
        if workers.from_chief(strategy, int(reason is not None)):
            dtype, reason = BFLOAT16, reason or "the chief computes in it"
        else:
            dtype, reason = FLOAT32, "the devices do not multiply bfloat16"
        logging.info("--dtype=auto: %s, since %s", dtype, reason)
        return dtype, {DTYPE_KEY: dtype}
    if dtype == BFLOAT16 and reason_for_bfloat16(strategy) is None:
        logging.warning(
            "--dtype=bfloat16: the devices are not known to multiply it, and then float32 is faster and more exact; "
            "give --dtype=auto"
        )
    return dtype, {}


def reason_for_bfloat16(strategy: tf.distribute.Strategy) -> str | None:
    """Returns why the devices are fast with bfloat16, as a part of a sentence; None if they are not known to be."""
    kind = kind_of_device(strategy)
    if kind == "TPU":
        return "a TPU multiplies it"
    if kind == "GPU":
        details = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
        capabilities = [detail.get("compute_capability", (0, 0)) for detail in details]
        return "the GPU multiplies it" if min(capabilities) >= _GPU_CAPABILITY else None
    if not _CPU_INFO.exists():  # not on Linux
        return None
    lines = _CPU_INFO.read_text(encoding="utf-8").splitlines()
    flags = next((line for line in lines if line.startswith("flags")), "").split()
    return next((f"the processor has {name}" for flag, name in _CPU_SIGNS.items() if flag in flags), None)
