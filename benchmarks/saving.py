#!/usr/bin/env python3
"""Measures what a checkpoint costs a pre-training of 12/768: its weights and Adam slots are 1.3 GB.

In: batches of random ids, sequences of 128 tokens. Out: a table, and with --output a line of JSON
    for each kind.

Some steps of training follow on each other without a checkpoint, with one that the training waits
for, as it did before the background had a thread for it, and with one that the thread writes. The
three take turns, and the median of the rounds counts. `blocked` are the seconds until the next step
may begin, `written` those until the checkpoint is complete. The cost is what the steps take longer
than those without a checkpoint: by the clock, and, because a machine may be busy, in seconds of its
cores.

    python benchmarks/saving.py --output=benchmarks/results/saving.jsonl
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from benchmarks.training_step import VOCAB, machine, prepare_threads, random_batch

NONE, WAITING, BACKGROUND = "none", "waiting", "background"


class Turn(NamedTuple):
    """The seconds of some steps: of a save until it returns and until it is written, of all by
    the clock and cores.
    """

    blocked: float
    written: float
    all: float
    cores: float


class Training(NamedTuple):
    """A training: a function that makes one update and returns its sums, and what it changes.

    Attributes:
        update: the function.
        variables: the variables of a checkpoint, by name.
        objective: what the updates minimise.
        optimizer: the optimizer.
    """

    update: Callable
    variables: dict
    objective: object
    optimizer: object


def training(size: str, batch_size: int) -> Training:
    """Returns a pre-training with random ids."""
    import tensorflow as tf

    from official_bert import BertConfig
    from official_bert.checkpoints import named_variables
    from official_bert.modeling import BertPretrainer
    from official_bert.optimization import EXCLUDED_FROM_DECAY, AdamWeightDecayOptimizer
    from official_bert.tasks.pretraining.objective import PretrainingObjective
    from official_bert.training.loop import compiled_steps
    from official_bert.training.step import TrainingStep

    model = BertPretrainer(BertConfig.from_size(size, VOCAB))
    weights = {name: variable.value for name, variable in named_variables(model).items()}
    optimizer = AdamWeightDecayOptimizer(1e-5, 0.01, exclude_from_weight_decay=EXCLUDED_FROM_DECAY)
    optimizer.build(weights.items())
    objective = PretrainingObjective(model, batch_size)
    step = TrainingStep(objective, list(weights.values()), optimizer, run_seed=1)
    run = compiled_steps(tf.distribute.get_strategy(), step)
    batch = {name: tf.constant(value[None]) for name, value in random_batch(batch_size).items()}
    variables = weights | {"global_step": optimizer.global_step} | optimizer.slots
    return Training(lambda: run(batch, 1), variables, objective, optimizer)


def save(kind: str, manager, number: int):
    """Saves a checkpoint, or none."""
    import tensorflow as tf

    from official_bert.checkpoints import tf1

    if kind == BACKGROUND:
        manager.save(number)
    elif kind == WAITING:  # as it was: values on the host, two passes of numpy over them, the files
        for variable in manager.variables.values():
            tf1._is_valid(tf.convert_to_tensor(variable).numpy())
        manager._write(number, manager.variables)


def turn(kind: str, manager, number: int, update, num_steps: int) -> Turn:
    """Saves, and makes some updates, after the last of which the checkpoint must be complete."""
    os.sync()  # what was written earlier is not written beside this turn
    start, start_cores = time.perf_counter(), time.process_time()
    save(kind, manager, number)
    blocked = written = time.perf_counter() - start
    is_written = kind != BACKGROUND
    for _ in range(num_steps):
        update()
        if not is_written and manager.wait(if_ended=True):
            is_written, written = True, time.perf_counter() - start
    if not is_written:
        manager.wait()
        written = time.perf_counter() - start
    return Turn(blocked, written, time.perf_counter() - start, time.process_time() - start_cores)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpus", default="0,1", help="cores to run on; each gets one thread")
    parser.add_argument("--size", default="base", help="the name of a size of BertConfig")
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--num_steps", type=int, default=8, help="updates after each save")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--folder", help="where the checkpoints are written; by default where temporary files are"
    )
    parser.add_argument("--note", help="a remark for the rows, such as what else the machine did")
    parser.add_argument("--output", help="JSON lines file that the rows are added to")
    flags = parser.parse_args()
    cpus = [int(cpu) for cpu in flags.cpus.split(",")]
    prepare_threads(cpus, want_peer=False)

    from official_bert.checkpoints import CheckpointManager

    update, variables, _, _ = training(flags.size, flags.batch_size)
    turns = {kind: [] for kind in (NONE, WAITING, BACKGROUND)}
    with tempfile.TemporaryDirectory(dir=flags.folder) as folder:
        manager = CheckpointManager(folder, variables, keep_max=1, saves_in_background=True)
        update()
        for round_ in range(-1, flags.rounds):  # the first one, which fills caches, does not count
            for place, (kind, kind_turns) in enumerate(turns.items()):
                result = turn(kind, manager, 10 * (round_ + 1) + place, update, flags.num_steps)
                if round_ >= 0:
                    kind_turns.append(result)
    median = {
        kind: Turn(*map(statistics.median, zip(*kind_turns, strict=True)))
        for kind, kind_turns in turns.items()
    }
    print(
        "\n| checkpoint | blocked, s | written after, s | cost by the clock, s | cost in core "
        "seconds |"
    )
    print("|---|--:|--:|--:|--:|")
    for kind, (blocked, written, all_secs, cores) in median.items():
        row = {
            "machine": machine(),
            "note": flags.note,
            "size": flags.size,
            "batch_size": flags.batch_size,
            "num_steps": flags.num_steps,
            "rounds": flags.rounds,
            "checkpoint": kind,
            "blocked_secs": blocked,
            "written_secs": written,
            "steps_and_save_secs": all_secs,
            "core_secs": cores,
            "cost_secs": all_secs - median[NONE].all,
            "cost_core_secs": cores - median[NONE].cores,
            "blocked_secs_of_rounds": [one.blocked for one in turns[kind]],
        }
        print(
            f"| {kind} | {blocked:.2f} | {written:.2f} | {row['cost_secs']:.2f} | "
            f"{row['cost_core_secs']:.2f} |"
        )
        if flags.output:
            with open(flags.output, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
