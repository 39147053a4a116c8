#!/usr/bin/env python3
"""Measures weak scaling: pre-training with the same batch per replica on one replica and on two.

In: batches of random ids. Out: a table, and a line of JSON in --output for each measurement; those
that the file already contains are not measured again.

Each replica has one CPU. `cpus` are logical CPUs of one process (--distribution_strategy=mirrored),
which is pinned to as many CPUs; `workers` are processes that official-bert launch starts
(multi_worker_mirrored), and pins to one each. `alone` are two processes that each train one replica
and know nothing of each other: what they reach together is the machine's limit, since its
processors share caches and memory. The time of the all-reduce is that of a loop which reduces
tensors of the shapes of the gradients and does nothing else; in a step it may take longer, because
a replica waits for the slowest, or be hidden by other work.

    python benchmarks/weak_scaling.py --output=benchmarks/results/weak_scaling.jsonl
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

SIZES = {"mini": 8, "tiny": 16}  # 4/256 and 2/128: examples of a batch on each replica
KINDS = {("cpus", 1): "1 logical CPU", ("cpus", 2): "2 logical CPUs"}
KINDS |= {("workers", 1): "1 worker", ("workers", 2): "2 workers"}
KINDS |= {("alone", 1): "1 process", ("alone", 2): "2 independent processes"}
LENGTH, PREDICTIONS, VOCAB = 128, 20, 30522
STEPS, ROUNDS = 10, 5


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "benchmarks/results/weak_scaling.jsonl"
    )
    parser.add_argument(
        "--measure", nargs=3, metavar=("SIZE", "KIND", "COUNT"), help="for the processes themselves"
    )
    arguments, _ = parser.parse_known_args()
    if arguments.measure:
        size, kind, count = arguments.measure
        measure(size, kind, int(count))
        return
    lines = arguments.output.read_text().splitlines() if arguments.output.exists() else []
    rows = {(row["size"], row["kind"], row["count"]): row for row in map(json.loads, lines)}
    for size in SIZES:
        for kind, count in KINDS:
            if (size, kind, count) not in rows:
                row = rows[size, kind, count] = measure_processes(size, kind, count)
                with arguments.output.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print_table(rows)


def print_table(rows: dict):
    """Prints the speeds, also as shares of the limit: that of as many independent processes."""
    print(
        "| model | replicas | examples/s | times one replica | share of the limit | ms a step | ms "
        "all-reduce |\n|---|---|--:|--:|--:|--:|--:|"
    )
    for size, batch_size in SIZES.items():
        speeds = {key: row["count"] * batch_size / row["step_secs"] for key, row in rows.items()}
        for (kind, count), name in KINDS.items():
            row, speed = rows[size, kind, count], speeds[size, kind, count]
            reduce_secs = row["reduce_secs"]
            reduced = (
                f"{reduce_secs * 1e3:.0f} ({reduce_secs / row['step_secs']:.0%})"
                if reduce_secs
                else ""
            )
            print(
                f"| {row['model']} | {name} | {speed:.1f} | {speed / speeds[size, kind, 1]:.2f} | "
                f"{speed / speeds[size, 'alone', count]:.0%} | {row['step_secs'] * 1e3:.0f} | "
                f"{reduced} |"
            )


def measure_processes(size: str, kind: str, count: int) -> dict:
    """Runs a measurement in processes of its own and returns its row."""
    program = [sys.executable, __file__, "--measure", size, kind, str(count)]
    cpus = sorted(os.sched_getaffinity(0))[:count]
    if kind == "alone":
        with concurrent.futures.ThreadPoolExecutor() as threads:
            rows = list(threads.map(lambda cpu: printed_row(program, {cpu}), cpus))
        row = rows[0] | {"step_secs": statistics.harmonic_mean([row["step_secs"] for row in rows])}
    elif kind == "workers":
        launch = [
            sys.executable,
            "-m",
            "official_bert",
            "launch",
            f"--num_workers={count}",
            "--max_restarts=0",
            "--",
        ]
        row = printed_row(launch + program, set(cpus))
    else:
        row = printed_row(program, set(cpus))
    print(json.dumps(row), flush=True)
    return row


def printed_row(program: list[str], cpus: set[int]) -> dict:
    """Runs a program on these CPUs and returns the row that it prints."""
    ran = subprocess.run(
        program,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, cpus),
    )
    for line in ran.stdout.splitlines():
        _, mark, text = line.partition("ROW ")
        if mark:
            return json.loads(text)
    raise SystemExit(ran.stderr[-3000:] + ran.stdout[-3000:])


def measure(size: str, kind: str, count: int):
    """Measures steps and all-reduces in turns, and prints the medians."""
    import numpy as np
    import tensorflow as tf

    from official_bert import BertConfig
    from official_bert.checkpoints import named_variables
    from official_bert.modeling import BertPretrainer
    from official_bert.optimization import AdamWeightDecayOptimizer
    from official_bert.options.shared import DistributionOptions
    from official_bert.tasks.pretraining.objective import PretrainingObjective
    from official_bert.training.distribution import make_strategy, split_over_replicas
    from official_bert.training.loop import compiled_steps
    from official_bert.training.step import TrainingStep, all_reduced
    from official_bert.training.workers import Workers

    replicas = 1 if kind == "alone" else count
    options = {"distribution_strategy": "mirrored", "num_devices": replicas}
    if kind == "workers":
        options = {"distribution_strategy": "multi_worker_mirrored"}
    strategy = make_strategy(DistributionOptions(**options))
    batch_size = SIZES[size] * replicas
    config = BertConfig.from_size(size)
    with strategy.scope():
        model = BertPretrainer(config)
        variables = {name: variable.value for name, variable in named_variables(model).items()}
        optimizer = AdamWeightDecayOptimizer(1e-4, weight_decay_rate=0.01)
        optimizer.build(variables.items())
        step = TrainingStep(
            PretrainingObjective(model, batch_size),
            list(variables.values()),
            optimizer,
            run_seed=1,
        )
    run_steps = compiled_steps(strategy, step)

    draws = np.random.default_rng(0)
    shape = (STEPS, batch_size)
    batches = {
        "input_ids": draws.integers(0, VOCAB, (*shape, LENGTH)),
        "input_mask": np.ones((*shape, LENGTH)),
        "segment_ids": draws.integers(0, 2, (*shape, LENGTH)),
        "masked_lm_positions": draws.integers(0, LENGTH, (*shape, PREDICTIONS)),
        "masked_lm_ids": draws.integers(0, VOCAB, (*shape, PREDICTIONS)),
        "next_sentence_labels": draws.integers(0, 2, (*shape, 1)),
    }
    batches = {name: tf.constant(values, tf.int32) for name, values in batches.items()}
    batches["masked_lm_weights"] = tf.ones((*shape, PREDICTIONS))
    parts = split_over_replicas(strategy, batches)

    @tf.function(autograph=False)
    def reduce_once(scale):
        def on_replica(scale):
            # The largest tensor depends on the argument, so that no constant is folded.
            return tf.add_n(
                [
                    tf.reduce_sum(each[:1])
                    for each in all_reduced([tf.fill(shape, scale) for shape in shapes])
                ]
            )

        return strategy.experimental_local_results(strategy.run(on_replica, args=(scale,)))

    shapes = [variable.shape for variable in variables.values()]
    fill_secs, reduce_secs, step_secs = [], [], []
    run_steps(parts, STEPS)
    reduce_once(tf.constant(0.5))
    for _ in range(ROUNDS):
        Workers(strategy).wait()
        step_secs.append(timed(lambda: run_steps(parts, STEPS)) / STEPS)
        reduce_secs.append(
            timed(lambda: [reduce_once(tf.constant(0.5)) for _ in range(STEPS)]) / STEPS
        )
        fill_secs.append(
            timed(lambda: [tf.fill(shape, 0.5) for _ in range(STEPS) for shape in shapes]) / STEPS
        )
    reduced = (
        max(0.0, statistics.median(reduce_secs) - statistics.median(fill_secs))
        if replicas > 1
        else 0.0
    )
    row = {
        "size": size,
        "model": f"{config.num_hidden_layers}/{config.hidden_size}",
        "kind": kind,
        "count": count,
        "step_secs": statistics.median(step_secs),
        "reduce_secs": reduced,
        "gradient_bytes": 4 * sum(shape.num_elements() for shape in shapes),
    }
    if Workers(strategy).is_chief:
        print("ROW", json.dumps(row), flush=True)
    Workers(strategy).wait()


def timed(call) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
