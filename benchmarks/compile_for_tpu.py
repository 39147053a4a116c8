#!/usr/bin/env python3
"""Compiles an HLO module with the TPU compiler of libtpu, for TPUs that need not be there.

In: a serialized HLO module of one replica's program. Out: a line of JSON with the memory that the
program takes on each TPU. tpu_compile.py starts this script in the virtual environment that
`make install-tpu-compile` makes, whose versions are pinned because it uses interfaces of JAX that
are not public.
"""

import argparse
import json
import os
import pathlib
import time

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # no TPU is opened that another process could hold
os.environ["TPU_SKIP_MDS_QUERY"] = "1"  # else libtpu asks a server of the cloud, for minutes

import jax
import numpy as np
from jax._src import compiler
from jax._src.interpreters import mlir
from jax.experimental import topologies
from jaxlib import _jax
from jaxlib.mlir import ir


def parse_hlo(hlo: bytes) -> ir.Module:
    """Returns an HLO module in StableHLO, the form that the compiler reads."""
    with mlir.make_ir_context():
        module = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(hlo))
        copies = []
        module.operation.walk(lambda operation: _note_copy(operation, copies))
        # StableHLO has none; they are values that TensorFlow assigns to variables.
        for copy in copies:
            copy.result.replace_all_uses_with(copy.operands[0])
            copy.erase()
    return module


def _note_copy(operation, copies: list) -> ir.WalkResult:
    if operation.name == "mhlo.copy":
        copies.append(operation)
    return ir.WalkResult.ADVANCE


def compiled(module: ir.Module, topology_name: str, num_replicas: int) -> dict:
    """Compiles a module for some TPUs of a topology.

    Returns:
        A dict of `device`, `compile_secs` and `fits`. If it fits, `argument_bytes` (what is there
        before the program
        runs: weights, slots, inputs), `temporary_bytes`, `program_bytes` and their sum `hbm_bytes`;
            else `reason`.
    """
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology_name).devices[
        :num_replicas
    ]
    options = compiler.get_compile_options(
        num_replicas=num_replicas,
        num_partitions=1,
        device_assignment=np.array([[device.id] for device in devices]),
    )
    start = time.perf_counter()
    device_row = {"device": devices[0].device_kind}
    try:
        executable = devices[0].client.compile(
            module, executable_devices=_jax.DeviceList(tuple(devices)), compile_options=options
        )
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).splitlines()[0]
        if "RESOURCE_EXHAUSTED" not in reason:
            raise
        sizes = {"fits": False, "reason": reason}
    else:
        memory = executable.get_compiled_memory_stats()
        sizes = {
            "fits": True,
            # The new weights take the place of the old ones, so that only other results add to the
            # arguments.
            "argument_bytes": memory.argument_size_in_bytes
            + memory.output_size_in_bytes
            - memory.alias_size_in_bytes,
            "temporary_bytes": memory.temp_size_in_bytes,
            "program_bytes": memory.generated_code_size_in_bytes,
        }
        sizes["hbm_bytes"] = sum(value for name, value in sizes.items() if name.endswith("bytes"))
    return device_row | {"compile_secs": round(time.perf_counter() - start, 1)} | sizes


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("module", type=pathlib.Path, help="file with the serialized HLO module")
    parser.add_argument("--topology", required=True, help="such as v5e:2x2 or v4:2x2x1")
    parser.add_argument(
        "--num_replicas", type=int, required=True, help="number of TPUs that run the program"
    )
    flags = parser.parse_args()
    module = parse_hlo(flags.module.read_bytes())
    print(json.dumps(compiled(module, flags.topology, flags.num_replicas)))


if __name__ == "__main__":
    main()
