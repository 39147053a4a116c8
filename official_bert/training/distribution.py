"""Sets up the devices of a run.

It makes the strategy that the flags name, and splits batches over its replicas.

Each strategy is made by one function in `_STRATEGIES`, under its name in
`options.shared.STRATEGIES`.
"""

import dataclasses
import functools
import glob
import os
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.io import processes
from official_bert.io.errors import InputError, WorkerLost, brief
from official_bert.options.shared import (
    AUTO,
    FLOAT32,
    MULTI_WORKER,
    NCCL,
    RING,
    DistributionOptions,
)
from official_bert.training.workers import Workers, read_cluster

INSTALL_GPU = 'pip install "tensorflow[and-cuda]>=2.20,<2.22"'
# Values of CUDA_VISIBLE_DEVICES with which a user hides the GPUs.
_HIDDEN = ("", "-1", "NoDevFiles")
TPU_LIMIT_SECS = 600.0  # a TPU that has just been created takes minutes to answer
_WORKERS_LIMIT_SECS = 3600.0  # a cluster may start its machines one after the other


def strategy_name(options: DistributionOptions) -> str:
    """Returns the name of the strategy that the flags choose.

    Args:
        options: the flags of the devices.
    """
    if options.distribution_strategy:
        return options.distribution_strategy
    return "tpu" if options.use_tpu else "one_device"


def is_tpu(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether a strategy runs on TPU.

    Batches then have one shape, and words are looked up by one-hot products.

    Args:
        strategy: the devices.
    """
    return isinstance(strategy, tf.distribute.TPUStrategy)


def replica_hosts(strategy: tf.distribute.Strategy) -> list[str]:
    """Returns the device of the host of each replica of a TPU slice.

    The list is empty if there is one host, as without a TPU.

    Args:
        strategy: the devices.
    """
    if not is_tpu(strategy):
        return []
    hosts = []
    for name in strategy.extended.worker_devices:
        device = tf.DeviceSpec.from_string(name)
        hosts.append(device.replace(device_type="CPU", device_index=0).to_string())
    return hosts if len(set(hosts)) > 1 else []


def make_strategy(options: DistributionOptions) -> tf.distribute.Strategy:
    """Sets up the devices and returns the strategy.

    Equal flags give the same object again, because two strategies in one process conflict. Call
    this function before any other use of TensorFlow. Later the CPU cannot be split, nor a TPU
    initialised.

    Args:
        options: the flags of the devices.

    Raises:
        InputError: the flags do not fit each other or the devices.
        WorkerLost: another worker cannot be reached.
    """
    names = [field.name for field in dataclasses.fields(DistributionOptions)]
    distribution_flags = {name: getattr(options, name) for name in names}
    return cached_strategy(DistributionOptions(**distribution_flags))


@functools.cache
def cached_strategy(options: DistributionOptions) -> tf.distribute.Strategy:
    """Returns the strategy of the flags; a process makes it once, and sets up the devices then.

    Args:
        options: the flags of the devices.

    Raises:
        InputError: the flags do not fit each other or the devices.
        WorkerLost: another worker cannot be reached.
    """
    name = strategy_name(options)
    if options.use_tpu and name != "tpu":
        logging.warning("--use_tpu has no effect, since --distribution_strategy=%s is given", name)
    if options.num_devices and name != "mirrored":
        raise InputError(
            f"--num_devices={options.num_devices}: only goes with "
            "--distribution_strategy=mirrored; add that, or leave it out"
        )
    if options.collective != AUTO and name != MULTI_WORKER:
        raise InputError(
            f"--collective={options.collective}: only goes with "
            f"--distribution_strategy={MULTI_WORKER}; add that, or leave it out"
        )
    strategy = _STRATEGIES[name](options)
    log_devices(strategy, name)
    if options.all_reduce_dtype != FLOAT32 and strategy.num_replicas_in_sync == 1:
        logging.warning(
            "--all_reduce_dtype=%s has no effect on a single device", options.all_reduce_dtype
        )
    return strategy


def check_divides(
    batch_size: int, num_replicas: int, flag: str, num_micro_batches: int = 1
) -> None:
    """Validates that the replicas can share a batch evenly, in equal micro-batches.

    Args:
        batch_size: the number of examples in a batch.
        num_replicas: the number of replicas.
        flag: the name of the flag with the batch size.
        num_micro_batches: the number of micro-batches of a replica.

    Raises:
        InputError: the batch size is no multiple of the number of parts.
    """
    if num_micro_batches > 1 and batch_size % (num_replicas * num_micro_batches):
        raise InputError(
            f"--{flag}={batch_size} cannot be computed by {num_replicas} replicas in "
            f"--num_accumulation_steps={num_micro_batches} equal parts; give a multiple of "
            f"{num_replicas * num_micro_batches}"
        )
    if batch_size % num_replicas:
        raise InputError(
            f"--{flag}={batch_size} cannot be shared evenly by {num_replicas} replicas; "
            f"give a multiple of {num_replicas}"
        )


def split_over_replicas(
    strategy: tf.distribute.Strategy,
    batch: Mapping[str, tf.Tensor | np.ndarray],
    axis: int = 1,
    is_local: bool = False,
) -> dict:
    """Splits a batch into equal parts, one for each replica, for `strategy.run`.

    Args:
        strategy: the devices.
        batch: the values by name, [batch, ...] with `axis` 0 and [steps, batch, ...] with 1.
        axis: the axis that is split.
        is_local: whether the batch is only that of this worker's replicas.

    Returns:
        Distributed values, [batch / replicas, ...] or [steps, batch / replicas, ...]. For one
        replica they are the values themselves.
    """
    num_replicas = strategy.num_replicas_in_sync
    if is_local:
        num_replicas //= Workers(strategy).count
    if strategy.num_replicas_in_sync == 1:
        return dict(batch)

    def cut(value: np.ndarray, replica: int):
        size = value.shape[axis] // num_replicas
        part = slice(replica * size, (replica + 1) * size)
        return value[(slice(None),) * axis + (part,)]

    def cut_batch(context: Any):
        replica = context.replica_id_in_sync_group % num_replicas
        return {name: cut(value, replica) for name, value in batch.items()}

    return strategy.experimental_distribute_values_from_function(cut_batch)


def _one_device(_: DistributionOptions) -> tf.distribute.Strategy:
    """Returns the default strategy, which uses the first GPU if there is one."""
    return tf.distribute.get_strategy()


def _mirrored(options: DistributionOptions) -> tf.distribute.Strategy:
    """Returns a mirrored strategy of --num_devices GPUs, or of all.

    Without a GPU, the devices are logical CPUs.
    """
    num_gpus = len(tf.config.list_physical_devices("GPU"))
    if num_gpus and not options.num_devices:
        return tf.distribute.MirroredStrategy()
    count = options.num_devices or 1
    if num_gpus and count > num_gpus:
        raise InputError(
            f"--num_devices={count}: TensorFlow sees only {num_gpus} GPUs; give at most that, or "
            "leave the flag out"
        )
    if not num_gpus and count > 1:
        logging.warning(
            "--num_devices=%d: TensorFlow sees no GPU; the CPU is split into %d devices, which is "
            "no faster",
            count,
            count,
        )
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * count
        )
    kind = "GPU" if num_gpus else "CPU"
    return tf.distribute.MirroredStrategy([f"{kind}:{index}" for index in range(count)])


def make_multi_worker(options: DistributionOptions) -> tf.distribute.Strategy:
    """Returns the strategy of several processes, when all of them have been started.

    Args:
        options: the flags of the devices.

    Raises:
        InputError: --collective does not suit the devices, or TF_CONFIG does not describe the
            workers.
        WorkerLost: a worker cannot be reached.
    """
    cluster = read_cluster()
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    if options.collective == NCCL and not has_gpu:
        raise InputError(
            "--collective=nccl: TensorFlow sees no GPU, which NCCL needs; give --collective=ring "
            "or auto"
        )
    # TensorFlow's own AUTO uses the ring on GPUs, too. TensorFlow refuses a group of devices of
    # several kinds, so all processes choose the same one here.
    collective = options.collective
    if collective == AUTO:
        collective = NCCL if has_gpu else RING
    communication = tf.distribute.experimental.CommunicationOptions(implementation=collective)
    logging.info("Collective operations of the workers: %s", collective)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.hosts),
        task_type=cluster.role,
        task_id=cluster.index,
        rpc_layer="grpc",
    )
    addresses = ", ".join(address for hosts in cluster.hosts.values() for address in hosts)
    try:
        strategy = processes.wait_for_result(
            lambda: tf.distribute.MultiWorkerMirroredStrategy(resolver, communication),
            f"all workers ({addresses})",
            _WORKERS_LIMIT_SECS,
        )
    except (tf.errors.OpError, OSError, RuntimeError) as error:
        address = cluster.hosts[cluster.role][cluster.index]
        raise WorkerLost(
            f"{cluster.role} {cluster.index} at {address}: the workers {addresses} cannot be "
            f"reached ({brief(error)}); check the addresses, that no other program listens there, "
            "and that each worker is started"
        ) from error
    processes.take_back()
    return strategy


def _tpu(options: DistributionOptions) -> tf.distribute.Strategy:
    address = options.tpu_name or options.master
    if not address:
        raise InputError(
            "--tpu_name: not given; give the TPU's name, its grpc:// address, or 'local' on a TPU "
            "VM"
        )

    def connect():
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=address, zone=options.tpu_zone, project=options.gcp_project
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return resolver

    try:
        resolver = processes.wait_for_result(connect, f"the TPU {address}", TPU_LIMIT_SECS)
    except (tf.errors.OpError, OSError, ValueError, RuntimeError, ImportError) as error:
        reason = str(error).split(". ")[0].split("\n")[0]
        raise InputError(
            f"--tpu_name={address}: no TPU system answers there ({reason}); check the name, "
            "--tpu_zone and --gcp_project, that a TensorFlow with TPU support is installed, for "
            "v5e, v5p and v6e that PJRT_DEVICE and the other variables of docs/tpu.md are set, and "
            "for a slice of several hosts that examples/clusters/tpu_host.py runs on each"
        ) from error
    strategy = tf.distribute.TPUStrategy(resolver)
    count = strategy.num_replicas_in_sync
    if count != options.num_tpu_cores:
        raise InputError(
            f"--num_tpu_cores={options.num_tpu_cores}, but {address} has {count} cores; give "
            f"--num_tpu_cores={count}"
        )
    return strategy


_STRATEGIES = {
    "one_device": _one_device,
    "mirrored": _mirrored,
    MULTI_WORKER: make_multi_worker,
    "tpu": _tpu,
}


def log_devices(strategy: tf.distribute.Strategy | None = None, name: str = "one_device") -> None:
    """Logs the devices of a run, and warns if TensorFlow does not see the GPU of the machine.

    The first use of a device fixes the configuration of all, so make the strategy first.

    Args:
        strategy: the devices; None for the first GPU or the CPU.
        name: the name of the strategy.
    """
    if strategy is None:
        strategy = tf.distribute.get_strategy()
    assert strategy is not None  # TensorFlow has a default strategy
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    kind = "GPU" if has_gpu else "CPU"
    if name == "tpu":
        kind = "TPU"
    elif name == "mirrored" and "CPU" in strategy.extended.worker_devices[0]:
        kind = "CPU"  # which is split, for tests
    count = strategy.num_replicas_in_sync
    names = [device.name for device in tf.config.list_logical_devices(kind)][:count]
    logging.info("Devices: %s; strategy %s, number of replicas %d", ", ".join(names), name, count)
    if kind == "CPU" and not has_gpu and (sign := gpu_sign()):
        logging.warning(
            "TensorFlow sees no GPU, although %s is there, and runs on the CPU: install its GPU "
            "libraries with %s, or check the driver with nvidia-smi; CUDA_VISIBLE_DEVICES=-1 "
            "chooses the CPU without this warning",
            sign,
            INSTALL_GPU,
        )


def device_kind(strategy: tf.distribute.Strategy) -> str:
    """Returns the kind of device that the replicas run on: CPU, GPU or TPU.

    Args:
        strategy: the devices.
    """

    def on_replica():
        return tf.DeviceSpec.from_string(tf.zeros([]).device).device_type

    return strategy.experimental_local_results(strategy.run(on_replica))[0]


def gpu_sign() -> str | None:
    """Returns a program or a device file that shows an NVIDIA GPU.

    The result is None if there is no such sign, or if the user hides the GPUs.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES") in _HIDDEN:
        return None
    device_files = sorted(glob.glob("/dev/nvidia[0-9]*"))
    return shutil.which("nvidia-smi") or next(iter(device_files), None)
