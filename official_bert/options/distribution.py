"""The options of the devices that a trainer runs on: the original's TPU flags and the strategies beside them."""

import dataclasses

from official_bert.options.fields import NOT_NEGATIVE, POSITIVE, PROCESSES, SIZE, option

MULTI_WORKER = "multi_worker_mirrored"
STRATEGIES = ("one_device", "mirrored", MULTI_WORKER, "tpu")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistributionOptions:
    """Flags that every trainer shares."""

    use_tpu: bool = option(
        False, help="Run on the TPU that --tpu_name names. It means the same as --distribution_strategy=tpu."
    )
    tpu_name: str | None = option(
        None,
        alias="tpu",
        help="The TPU that --use_tpu runs on: its name in Google Cloud, its address such as grpc://10.0.0.2:8470, or "
        "local on a TPU VM.",
    )
    tpu_zone: str | None = option(
        None,
        help="The Google Cloud zone of the TPU. Without this flag TensorFlow asks the metadata server of the machine.",
    )
    gcp_project: str | None = option(
        None,
        help="The Google Cloud project of the TPU. Without this flag TensorFlow asks the metadata server of the "
        "machine.",
    )
    master: str | None = option(
        None, help="The address of the TPU. The script uses it when --tpu_name is not given."
    )
    num_tpu_cores: int = option(
        8,
        check=POSITIVE,
        help="The number of cores of the TPU. The script refuses a TPU that has another number.",
    )
    iterations_per_loop: int = option(
        1000,
        check=SIZE,
        help="The number of training steps that a TPU runs before it returns to the host. Other devices follow "
        "--steps_per_loop.",
    )
    distribution_strategy: str | None = option(
        None,
        choices=STRATEGIES,
        help="The devices that share a batch: one_device (the default) is the first GPU or the CPU; mirrored is all "
        "GPUs of this machine, or the logical CPUs if there is none; multi_worker_mirrored is all GPUs, or the CPU, of "
        "each of several processes, which run this script with equal flags; tpu (the default with --use_tpu) is all "
        "cores of a TPU.",
    )
    worker_hosts: list[str] | None = option(
        None,
        help="The addresses host:port of all processes of --distribution_strategy=multi_worker_mirrored, separated by "
        "commas. Without this flag the environment variable TF_CONFIG has them.",
    )
    task_index: int | None = option(
        None,
        check=NOT_NEGATIVE,
        help="The number of this process in --worker_hosts, counted from 0. Process 0 writes the results.",
    )
    num_gpus: int | None = option(
        None,
        check=PROCESSES,
        help="The number of GPUs that --distribution_strategy=mirrored uses, the first ones. Without this flag it uses "
        "all of them.",
    )
    steps_per_loop: int = option(
        10,
        check=SIZE,
        help="The number of training steps in one call into TensorFlow. A TPU follows --iterations_per_loop.",
    )
    num_logical_cpus: int = option(
        1,
        check=PROCESSES,
        help="The number of logical devices that --distribution_strategy=mirrored splits the CPU into, for tests.",
    )
    jit_compile: bool = option(
        False, help="Compile the training step with XLA. On a TPU it is always compiled."
    )
