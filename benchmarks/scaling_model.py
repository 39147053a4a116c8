#!/usr/bin/env python3
"""Computes on paper how pre-training scales to many replicas, and what a corpus costs: the tables
of a report.

In: the FLOP count of the project, data sheets, and measured terms as flags, whose defaults are
those of results/. Out: the time of an update in its parts for a low and a high utilization, the
share of it in which the devices compute, the machines that a corpus needs.

    update     = the larger of (compute + all-reduce + optimizer) and input, and its part of a checkpoint
    compute    = FLOPs of a replica's batch / (peak * utilization)
    all-reduce = 2 (d - 1)/d bytes/link + 2 (m - 1)/m bytes/network + 2 log2(m) latency, of what is not hidden
    optimizer  = bytes of weights, slots and gradients, read or written / bandwidth of the memory
    input      = records that a process reads / records a second
    checkpoint = seconds that one stops the training / updates between two

d is the number of devices of a machine and m that of machines. The all-reduce has two levels: the
devices of a machine reduce over their links, and the machines over the network, which the devices
of each share. With --hides_all_reduce as much of it is hidden as the backward pass lasts, two
thirds of the computation, but for one bucket of the gradients.

    python benchmarks/scaling_model.py
"""

import argparse
import json
import math
import pathlib
import sys
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from official_bert import BertConfig
from official_bert.training.flops import training_flops

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
PARAMETERS = {"base": 110.1e6, "large": 336.2e6}  # with the heads of pre-training
ADAM_PASSES = 7  # over the weights: gradient, weight and two slots are read, three of them written
BACKWARD_SHARE = 2 / 3  # of the computation
BUCKET_BYTES = 25 * 2**20  # reduced last, when the backward pass is over
LATENCY_SECS = 10e-6
# Of the peak, which our step and that of Hugging Face reached on an H100.
UTILIZATION = 0.245, 0.325
CHECKPOINT_SECS = 0.1  # that one of Base, 1.3 GB, stops the training: results/saving.jsonl
# What buckets of gradients hide behind the backward pass has not been measured.
HIDES_ALL_REDUCE = False
# A corpus of the size of the paper's, with what 6 MB of Wikipedia took.
WORDS, PASSES, WORD_BYTES, RECORDS_PER_MILLION_WORDS = 3.3e9, 10, 6.16, 16_040
RECORD_BYTES, COMPRESSED_BYTES, SHARD_BYTES = 818, 243, 32 * 2**20
# Of a processor: one process hands the documents of 101 MB to the shards.
SPLIT_SECS_PER_BYTE = 0.8 / 101e6
# A large corpus in parts of --part, each with 16 processes.
TERABYTE, PARTS, PART_WORKERS = 1e12, 256, 16


class Machine(NamedTuple):
    """A machine by its data sheet.

    Attributes:
        peak: FLOP/s of a device in bfloat16.
        memory: bytes a second of a device's memory.
        link: bytes a second between the devices of a machine, in each direction.
        network: bytes a second between machines, in each direction, for all devices of a machine
            together.
    """

    name: str
    devices: int
    peak: float
    memory: float
    link: float
    network: float


MACHINES = (
    Machine("8 H100, 400 Gb/s", 8, 989e12, 3.35e12, 450e9, 50e9),
    Machine("8 A100, 100 Gb/s", 8, 312e12, 2.0e12, 300e9, 12.5e9),
)


def rows(name: str) -> list[dict]:
    return [
        json.loads(line)
        for line in (RESULTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def records_per_sec() -> int:
    """Returns what a process reads, by the slower of our runs at length 128."""
    return min(
        round(min(row["records_per_sec"]), -3)
        for row in rows("input_pipeline")
        if row["length"] == 128
    )


class Update(NamedTuple):
    """The seconds of the parts of an update; all_reduce is what is not hidden, input that of
    files of one's own.
    """

    compute: float
    all_reduce: float
    optimizer: float
    input: float
    checkpoint: float

    @property
    def secs(self) -> float:
        return max(self.compute + self.all_reduce + self.optimizer, self.input) + self.checkpoint


def update(
    flags, machine: Machine, size: str, length: int, batch: int, replicas: int, utilization: float
) -> Update:
    """Returns an update of `--num_accumulation_steps` batches of each replica, reduced once."""
    config, predictions = BertConfig.from_size(size), {128: 20, 512: 77}[length]
    batch *= flags.num_accumulation_steps
    compute = training_flops(config, batch, length, predictions) / (machine.peak * utilization)
    devices, machines = min(machine.devices, replicas), max(1, replicas // machine.devices)

    def reduced(volume: float) -> float:
        within = 2 * (devices - 1) / devices * volume / machine.link
        between = 2 * (machines - 1) / machines * volume / (flags.network or machine.network)
        return within + between + 2 * math.log2(machines) * LATENCY_SECS

    volume = PARAMETERS[size] * flags.gradient_bytes
    all_reduce = reduced(volume)
    # Else no gradient is known before all are.
    if flags.hides_all_reduce and flags.num_accumulation_steps == 1:
        all_reduce = max(all_reduce - BACKWARD_SHARE * compute, reduced(min(volume, BUCKET_BYTES)))
    optimizer = PARAMETERS[size] * 4 * ADAM_PASSES / machine.memory
    if flags.optimizer_secs is not None:
        optimizer = flags.optimizer_secs * PARAMETERS[size] / PARAMETERS["base"]
    checkpoint = (
        flags.checkpoint_secs * PARAMETERS[size] / PARAMETERS["base"] / flags.save_checkpoints_steps
    )
    return Update(
        compute, all_reduce, optimizer, batch * devices / flags.records_per_sec, checkpoint
    )


def print_updates(flags):
    """Prints the table of updates; where two numbers stand, for the low and the high
    utilization.
    """
    print(
        "| machine | model | length | batch of a replica | replicas | compute, ms | all-reduce | "
        "optimizer | own input | all input | share of compute | examples/s |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for machine in MACHINES:
        for size, length, batch in (("base", 128, 256), ("large", 128, 64), ("large", 512, 16)):
            for replicas in (8, 64, 1024):
                low, high = (
                    update(flags, machine, size, length, batch, replicas, share)
                    for share in flags.utilization
                )
                examples = batch * replicas * flags.num_accumulation_steps
                whole_input = examples / flags.records_per_sec
                cells = [f"{low.compute * 1e3:.0f} to {high.compute * 1e3:.0f}"]
                cells += [
                    f"{value * 1e3:.0f}"
                    for value in (high.all_reduce, high.optimizer, high.input, whole_input)
                ]
                cells += [f"{low.compute / low.secs:.0%} to {high.compute / high.secs:.0%}"]
                cells += [f"{examples / low.secs:,.0f} to {examples / high.secs:,.0f}"]
                print(
                    f"| {machine.name} | {size} | {length} | {batch} | {replicas} | "
                    f"{' | '.join(cells)} |"
                )


def print_corpus(flags):
    """Prints what the records of the paper's corpus cost, from the rates of one process at
    length 128.
    """
    text, records = WORDS * WORD_BYTES, WORDS / 1e6 * RECORDS_PER_MILLION_WORDS * PASSES
    shards = math.ceil(text / SHARD_BYTES)
    secs, split_secs = records / flags.made_per_sec, text * SPLIT_SECS_PER_BYTE
    one_machine, one_split = secs / 16, split_secs / 16
    print("\n| | |\n|---|---|")
    print(
        f"| text | 3.3 billion words x {WORD_BYTES} bytes = {text / 1e9:.0f} GB, {shards} shards "
        "of 32 MiB |"
    )
    print(
        f"| records | 3,300 x {RECORDS_PER_MILLION_WORDS:,} x {PASSES} = {records / 1e6:.0f} "
        "million |"
    )
    print(
        f"| files | {records / 1e6:.0f} million x {RECORD_BYTES} bytes = "
        f"{records * RECORD_BYTES / 1e9:.0f} GB; compressed {records * COMPRESSED_BYTES / 1e9:.0f} "
        "GB |"
    )
    print(
        f"| processor time of the records | {records / 1e6:.0f} million / {flags.made_per_sec:,} = "
        f"{secs:,.0f} s = {secs / 3600:.1f} hours of one processor |"
    )
    print(
        f"| processor time to distribute the text over the shards | {split_secs:.0f} s; "
        f"{text / 1e9:.0f} GB are written and read once more |"
    )
    print(
        f"| on one machine with 16 processors | {one_machine:.0f} + {one_split:.0f} s (+"
        f"{one_split / one_machine:.0%}) = {(one_machine + one_split) / 60:.0f} minutes, and the "
        "time to write the files |"
    )


def times_one_pass(measured: list[dict], passes: int) -> float:
    """Returns how many times as long some passes take to make shards as one, on one processor."""
    row = next(row for row in measured if row["passes"] == passes)
    one_pass = next(
        each for each in measured if each["passes"] == 1 and each["processor"] == row["processor"]
    )
    return row["make_secs"] / one_pass["make_secs"]


def print_terabyte():
    """Prints what the records of a terabyte of text take in parts, from the terms of the largest
    run of one pass on our fastest processor. What more passes add is their share on the processor
    that made both, because a part reads and tokenizes its text once for all of them.

    Each part first starts and distributes its text, and then makes its shards, in rounds of as many
    as it has processes. The processes of a part read different files, so its text is in at least as
    many files of about the same size. Parts run in rounds, too. The time to read and write files is
    not in it; the last column is what a file system would have to read and write.
    """
    part_bytes = TERABYTE / PARTS
    shard_rounds = math.ceil(math.ceil(part_bytes / SHARD_BYTES) / PART_WORKERS)
    print(
        "\n| processors | parts at a time | passes | a part: start, s | distributes, s | makes, s | "
        "all parts, minutes | if one process distributed, minutes | records/s | GB/s |"
    )
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    measured = [row for row in rows("records_parts") if row["parts"] == 4]
    row = min((row for row in measured if row["passes"] == 1), key=lambda row: row["cpu_secs"])
    num_bytes = row["text_mb"] * 1e6
    start_secs = row["start_secs"] / row["parts"]
    distribute_secs_per_byte = row["distribute_secs"] / num_bytes
    distribute_secs = part_bytes * distribute_secs_per_byte / PART_WORKERS
    for passes in (1, 10):
        make_secs = shard_rounds * SHARD_BYTES * row["make_secs"] / num_bytes
        make_secs *= times_one_pass(measured, passes)
        records = TERABYTE * passes * row["records"] / num_bytes
        for processors in (64, 256, 1024):
            at_a_time = processors // PART_WORKERS
            part_rounds = math.ceil(PARTS / at_a_time)
            secs = part_rounds * (start_secs + distribute_secs + make_secs)
            serial_secs = TERABYTE * distribute_secs_per_byte + part_rounds * make_secs
            moved = 3 * TERABYTE + records * RECORD_BYTES
            cells = [f"{start_secs:.1f}", f"{distribute_secs:.1f}", f"{make_secs:.0f}"]
            cells += [f"{secs / 60:.1f}", f"{serial_secs / 60:.0f}"]
            cells += [f"{records / secs:,.0f}", f"{moved / secs / 1e9:.1f}"]
            print(f"| {processors} | {at_a_time} | {passes} | {' | '.join(cells)} |")


def parse_arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--utilization",
        type=float,
        nargs=2,
        default=UTILIZATION,
        metavar=("LOW", "HIGH"),
        help="of the peak",
    )
    add("--records_per_sec", type=int, default=records_per_sec(), help="that a process reads")
    add(
        "--checkpoint_secs",
        type=float,
        default=CHECKPOINT_SECS,
        help="that one of Base stops the training",
    )
    add("--save_checkpoints_steps", type=int, default=1000)
    add(
        "--optimizer_secs",
        type=float,
        help="of an update of Base; default: by the bandwidth of the memory",
    )
    add(
        "--hides_all_reduce",
        action=argparse.BooleanOptionalAction,
        default=HIDES_ALL_REDUCE,
        help="the gradients are reduced during the backward pass",
    )
    add("--gradient_bytes", type=int, default=4, help="2 with --all_reduce_dtype=bfloat16")
    add("--network", type=float, help="bytes a second between machines that the all-reduce reaches")
    add("--num_accumulation_steps", type=int, default=1)
    add(
        "--made_per_sec",
        type=int,
        default=36_000,
        help="records that a processor makes in a second",
    )
    return parser.parse_args(words)


def main():
    flags = parse_arguments()
    print_updates(flags)
    print_corpus(flags)
    print_terabyte()

    # The paper's own run: Base, a million updates of 256 sequences on 16 chips in four days, 45e12
    # FLOP/s each.
    base = BertConfig.from_size("base")
    total = 1e6 * (
        0.9 * training_flops(base, 256, 128, 20) + 0.1 * training_flops(base, 256, 512, 77)
    )
    used = total / (4 * 86400)
    share = used / (16 * 45e12)
    print(
        f"\nThe paper's run of Base: {total:.2e} FLOPs in 4 days, {used:.2e} FLOP/s, {share:.0%} "
        "of the peak"
    )


if __name__ == "__main__":
    main()
