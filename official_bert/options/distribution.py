"""Where a trainer runs: the original's TPU flags and the strategies beside them."""

import dataclasses

from official_bert.options.fields import POSITIVE, option

STRATEGIES = ("one_device", "mirrored", "tpu")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistributionOptions:
    """Flags that every trainer shares."""

    use_tpu: bool = option(False, help="Whether to use TPU or GPU/CPU.")
    tpu_name: str | None = option(
        None,
        alias="tpu",
        help="The Cloud TPU to use for training: either the name given when it was created, or a "
        "grpc://ip.address.of.tpu:8470 url.",
    )
    tpu_zone: str | None = option(
        None, help="Zone of the Cloud TPU; detected from metadata when not given. Only used with --use_tpu."
    )
    gcp_project: str | None = option(
        None,
        help="Project of the Cloud TPU; detected from metadata when not given. Only used with --use_tpu.",
    )
    master: str | None = option(
        None, help="TensorFlow master URL, used for the TPU when --tpu_name is absent."
    )
    num_tpu_cores: int = option(
        8, check=POSITIVE, help="Total number of TPU cores to use. Only used with --use_tpu."
    )
    iterations_per_loop: int = option(
        1000, check=POSITIVE, help="Steps in one device loop. Only used with --use_tpu."
    )
    distribution_strategy: str | None = option(
        None,
        choices=STRATEGIES,
        help="Devices that share a batch: one_device (default), mirrored (all GPUs of this machine, or the "
        "logical CPUs), tpu (default with --use_tpu).",
    )
    steps_per_loop: int = option(
        10, check=POSITIVE, help="Steps in one call into TensorFlow, elsewhere than on TPU."
    )
    num_logical_cpus: int = option(
        1, check=POSITIVE, help="Testing aid: splits the CPU into this many logical devices for mirrored."
    )
    jit_compile: bool = option(False, help="Compile the training step with XLA (on TPU it always is).")
