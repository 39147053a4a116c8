#!/usr/bin/env python3
"""Computes on paper how pre-training scales to many replicas: a table for docs/scaling_out.md.

In: the FLOP count of the project and the data sheets of machines. Out: the time of an update in its parts, and the
share of it in which the devices compute.

    update = compute + all-reduce, or the time in which the input is read if that is longer
    compute = FLOPs of a replica's batch / (peak * utilization)
    all-reduce = 2 (d - 1)/d bytes/link + 2 (m - 1)/m bytes/network + 2 log2(m) latency
    input = records that a process reads / records a second

d is the number of devices of a machine and m that of machines. The all-reduce has two levels: the devices of a machine
reduce over their links, and the machines over the network, which the devices of each share. Our step reduces all
gradients at once, behind the backward pass, so nothing of the all-reduce is hidden.

    python benchmarks/scaling_model.py
"""

import functools
import json
import math
import pathlib
import sys
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from official_bert import BertConfig
from official_bert.modeling.flops import training_flops

ROWS = pathlib.Path(__file__).parent / "results" / "input_pipeline.jsonl"
PARAMETERS = {"base": 110.1e6, "large": 336.2e6}  # with the heads of pre-training
BYTES = 4  # of a gradient: float32
LATENCY_SECS = 10e-6
UTILIZATION = 0.4  # assumed


class Machine(NamedTuple):
    """A machine by its data sheet.

    Attributes:
        peak: FLOP/s of a device in bfloat16.
        link: bytes a second between the devices of a machine, in each direction.
        network: bytes a second between machines, in each direction, for all devices of a machine together.
    """

    name: str
    devices: int
    peak: float
    link: float
    network: float


MACHINES = (Machine("8 H100, 400 Gb/s", 8, 989e12, 450e9, 50e9), Machine("8 A100, 100 Gb/s", 8, 312e12, 300e9, 12.5e9))


def update_secs(
    machine: Machine, size: str, length: int, batch: int, replicas: int, shards_input: bool
) -> tuple[float, float, float]:
    """Returns the seconds of an update for compute, all-reduce and input; the batch is that of a replica."""
    config = BertConfig.from_size(size)
    predictions = {128: 20, 512: 77}[length]
    compute = training_flops(config, batch, length, predictions) / (machine.peak * UTILIZATION)
    devices = min(machine.devices, replicas)
    machines = max(1, replicas // machine.devices)
    volume = PARAMETERS[size] * BYTES
    reduce = 2 * (devices - 1) / devices * volume / machine.link
    reduce += 2 * (machines - 1) / machines * volume / machine.network + 2 * math.log2(machines) * LATENCY_SECS
    records = batch * (devices if shards_input else replicas)
    return compute, reduce, records / records_per_sec(length)


@functools.cache
def records_per_sec(length: int) -> float:
    """Returns how many records with masks a process parses, by the slowest row of this length."""
    rows = map(json.loads, ROWS.read_text().splitlines())
    of_length = [row for row in rows if row["max_seq_length"] == length and not row["dynamic_masking"]]
    return min(row["records_per_sec"] for row in of_length)


def main():
    print(
        "| machine | model | length | batch of a replica | replicas | compute, ms | all-reduce, ms | input, ms "
        "| sharded input, ms | share of compute | examples/s |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for machine in MACHINES:
        for size, length, batch in (("base", 128, 256), ("large", 128, 64), ("large", 512, 16)):
            for replicas in (8, 64, 1024):
                compute, reduce, whole = update_secs(machine, size, length, batch, replicas, shards_input=False)
                *_, sharded = update_secs(machine, size, length, batch, replicas, shards_input=True)
                secs = max(compute + reduce, sharded)
                print(
                    f"| {machine.name} | {size} | {length} | {batch} | {replicas} | {compute * 1e3:.0f} "
                    f"| {reduce * 1e3:.0f} | {whole * 1e3:.0f} | {sharded * 1e3:.0f} | {compute / secs:.0%} "
                    f"| {batch * replicas / secs:,.0f} |"
                )

    # The paper's own run: Base, a million updates of 256 sequences on 16 chips in four days, 45e12 FLOP/s each.
    base = BertConfig.from_size("base")
    total = 1e6 * (0.9 * training_flops(base, 256, 128, 20) + 0.1 * training_flops(base, 256, 512, 77))
    used = total / (4 * 86400)
    share = used / (16 * 45e12)
    print(f"\nThe paper's run of Base: {total:.2e} FLOPs in 4 days, {used:.2e} FLOP/s, {share:.0%} of the peak")


if __name__ == "__main__":
    main()
