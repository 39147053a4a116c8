"""Says at the start of a run which devices it uses, and when TensorFlow does not see the GPU of the machine.

In: the strategy. Out: a line of the log, and perhaps a warning.
"""

from __future__ import annotations

import glob
import os
import shutil

import tensorflow as tf
from absl import logging

INSTALL_GPU = 'pip install "tensorflow[and-cuda]>=2.20,<2.22"'
_HIDDEN = ("", "-1", "NoDevFiles")  # values of CUDA_VISIBLE_DEVICES with which a user hides the GPUs


def log_devices(strategy: tf.distribute.Strategy | None = None, name: str = "one_device"):
    """Logs the devices of a run. The first use of a device fixes the configuration of all, so make the strategy first.

    Args:
        strategy: the strategy; None for that of a script which has no choice: the first GPU or the CPU.
        name: its name in --distribution_strategy.
    """
    strategy = strategy or tf.distribute.get_strategy()
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    kind = "GPU" if has_gpu else "CPU"
    if name == "tpu":
        kind = "TPU"
    elif name == "mirrored" and "CPU" in strategy.extended.worker_devices[0]:  # split, for tests
        kind = "CPU"
    count = strategy.num_replicas_in_sync
    names = [device.name for device in tf.config.list_logical_devices(kind)][:count]
    logging.info("Devices: %s; strategy %s, number of replicas %d", ", ".join(names), name, count)
    if kind == "CPU" and not has_gpu and (sign := gpu_sign()):
        logging.warning(
            "TensorFlow sees no GPU, although %s is there, and runs on the CPU: install its GPU libraries with %s, or "
            "check the driver with nvidia-smi; CUDA_VISIBLE_DEVICES=-1 chooses the CPU without this warning",
            sign,
            INSTALL_GPU,
        )


def kind_of_device(strategy: tf.distribute.Strategy) -> str:
    """Returns the kind of device that the replicas of a strategy run on: CPU, GPU or TPU."""

    def on_replica():
        return tf.DeviceSpec.from_string(tf.zeros([]).device).device_type

    return strategy.experimental_local_results(strategy.run(on_replica))[0]


def gpu_sign() -> str | None:
    """Returns the program or the device file by which this machine seems to have an NVIDIA GPU; None without one.

    A GPU that CUDA_VISIBLE_DEVICES hides does not count.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES") in _HIDDEN:
        return None
    return shutil.which("nvidia-smi") or next(iter(sorted(glob.glob("/dev/nvidia[0-9]*"))), None)
