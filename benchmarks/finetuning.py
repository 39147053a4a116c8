#!/usr/bin/env python3
"""Compares fine-tuning with Hugging Face on PyTorch: the metric of each task, and training and
evaluation seconds.

In: a folder of real data and a Hugging Face encoder. Out: tables, and a line of JSON in --output
for each finished run. Runs that this file already contains are not repeated.

Each run is a process of its own. Our side runs the script that users run. Hugging Face's side is
the usual loop: AdamW with bias correction, a linear schedule with warm-up, clipping at norm 1, all
examples shuffled in each epoch, and batches padded to their longest example. `--optimizer` chooses
PyTorch's plain AdamW, the fused one, which is the Trainer's default, or the original's. Both sides
read the same features, and our metrics score both. The seconds are those of the training loop and
of the evaluation loop, with tracing, but without imports and the reading of data; the lead in
training is that of an update, since the sides count the updates of an epoch differently.

    python benchmarks/finetuning.py --data=data --model=encoder --work_dir=work --output=runs.jsonl

A short pair for the seconds of an update, and our runs with other options, which are compared with
those without them or with those of --beside:

    python benchmarks/finetuning.py ... --tasks CoLA --optimizer fused --more='{"num_train_epochs": 0.5}'
    python benchmarks/finetuning.py ... --sides ours --more='{"dtype": "bfloat16"}'
    python benchmarks/finetuning.py ... --sides ours --seeds 0 1 2 3 4 --tasks STS-B CoLA-2500 --more='{"lora_rank": 8}'
"""

import argparse
import collections
import contextlib
import itertools
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import finetuning_tasks as tasks
import numpy as np

SIDES = ("ours", "peer")
OPTIMIZERS = ("usual", "fused", "original")


def our_run(benchmark: tasks.Benchmark, options) -> dict:
    """Trains and evaluates with our script, and times its training and evaluation loops."""
    from official_bert.fine_tuning.finetuner import Finetuner
    from official_bert.fine_tuning.run import fine_tune

    secs = {}

    def timed(name, what):
        method = getattr(Finetuner, name)

        def run(*arguments, **keywords):
            start = time.perf_counter(), time.process_time()
            result = method(*arguments, **keywords)
            secs[f"{what}_secs"] = time.perf_counter() - start[0]
            secs[f"{what}_cpu_secs"] = time.process_time() - start[1]
            return result

        setattr(Finetuner, name, run)

    timed("train", "train")
    timed("outputs", "eval")
    fine_tune(options)
    lines = (pathlib.Path(options.output_dir) / "eval_results.txt").read_text().splitlines()
    results = {name: float(value) for name, value in (line.rsplit(" = ", 1) for line in lines)}
    return {"results": results, "updates": int(results["global_step"])} | secs


def peer_run(
    benchmark: tasks.Benchmark, options, model_folder: pathlib.Path, optimizer: str
) -> dict:
    """Trains and evaluates Hugging Face's model."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(options.random_seed)
    sets = tasks.read_sets(options)
    model = tasks.peer_model(benchmark, sets, model_folder)

    start = time.perf_counter()
    updates = peer_training(model, sets, options, optimizer)
    train_secs = time.perf_counter() - start

    model.eval()

    def compute_logits(rows):
        length = int(sets.dev.lengths[rows].max())
        inputs = tasks.peer_inputs(sets.dev.features(rows, length))
        labels = [name for name in inputs if name in ("labels", "start_positions", "end_positions")]
        output = model(**{name: value for name, value in inputs.items() if name not in labels})
        logits = (
            [output.start_logits, output.end_logits]
            if hasattr(output, "start_logits")
            else [output.logits]
        )
        return [each.numpy() for each in logits]

    start = time.perf_counter()
    batch_size = getattr(options, "eval_batch_size", options.predict_batch_size)
    with torch.inference_mode():
        outputs = tasks.peer_outputs(sets, compute_logits, batch_size)
    eval_secs = time.perf_counter() - start
    return {
        "results": sets.task.metrics(sets.dev, outputs),
        "updates": updates,
        "train_secs": train_secs,
        "eval_secs": eval_secs,
        "num_targets": sets.num_targets,
    }


def peer_training(model, sets: tasks.Sets, options, optimizer: str) -> int:
    """Runs the usual training loop of Hugging Face's models, and returns the number of updates."""
    import torch
    import transformers
    from finetuning_losses import OriginalAdam

    batch_size, count = options.train_batch_size, len(sets.train.lengths)
    steps_per_epoch = math.ceil(count / batch_size)
    num_steps = int(steps_per_epoch * options.num_train_epochs)
    num_warmup_steps = int(num_steps * options.warmup_proportion)
    if optimizer == "original":
        update = OriginalAdam(
            model.named_parameters(), num_steps, num_warmup_steps, options.learning_rate
        ).step
    else:
        decayed, others = [], []
        for name, parameter in model.named_parameters():
            (others if "bias" in name or "LayerNorm" in name else decayed).append(parameter)
        groups = [
            {"params": decayed, "weight_decay": 0.01},
            {"params": others, "weight_decay": 0.0},
        ]
        adam = torch.optim.AdamW(
            groups, lr=options.learning_rate, eps=1e-8, fused=optimizer == "fused" or None
        )
        schedule = transformers.get_linear_schedule_with_warmup(adam, num_warmup_steps, num_steps)

        def update():
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            adam.step()
            schedule.step()
            adam.zero_grad()

    draws = np.random.default_rng(options.random_seed)
    model.train()
    for step in range(num_steps):
        start = step % steps_per_epoch * batch_size
        if start == 0:
            order = draws.permutation(count)
        rows = order[start : start + batch_size]
        batch = sets.train.features(rows, int(sets.train.lengths[rows].max()))
        loss = model(**tasks.peer_inputs(batch)).loss
        loss.backward()
        update()
        if step % 50 == 0:
            print(f"step {step}/{num_steps} loss {loss.item():.4f}", file=sys.stderr, flush=True)
    return num_steps


def passes(name: str, ours: list[float], peers: list[float], num_targets: int) -> bool:
    """Tells whether our mean is not significantly below the other side's.

    The tolerance is two standard errors: with several seeds those of the difference of the means,
    with one seed those of the difference of two proportions of `num_targets` examples.
    """
    scale = 100.0 if tasks.BENCHMARKS[name].is_percentage else 1.0
    difference = (statistics.mean(ours) - statistics.mean(peers)) / scale
    if min(len(ours), len(peers)) > 1:
        error = (
            math.sqrt(sum(statistics.variance(side) / len(side) for side in (ours, peers))) / scale
        )
    else:
        p = peers[0] / scale
        error = math.sqrt(2.0 * p * (1.0 - p) / num_targets)
    return difference >= -2.0 * error


def print_tables(rows: list[dict]):
    """Prints the comparison, one line for each task with runs of both sides."""
    print("\n| task | metric | runs | ours | Hugging Face | passes ", end="")
    print("| cores | pairs | an update, s | evaluation, s | lead |")
    print("|---|---|--:|--:|--:|---|--:|--:|--:|--:|--:|")
    for name, benchmark in tasks.BENCHMARKS.items():
        ours, peers = (
            [row for row in rows if (row["task"], row["side"]) == (name, side)] for side in SIDES
        )
        if not (ours and peers):
            continue
        values = [[row["results"][benchmark.metric] for row in side] for side in (ours, peers)]
        scale = 1.0 if benchmark.is_percentage else 100.0
        shown = [_mean_and_deviation([scale * value for value in side]) for side in values]
        verdict = "yes" if passes(name, *values, peers[0]["num_targets"]) else "no"
        threads, lead, times = " | ", "", ["", ""]
        pairs = _pairs(ours, peers)
        if pairs:
            threads = f"{pairs[0][0]['num_threads']} | {len(pairs)}"
            secs = [
                [
                    statistics.median(read_secs(row) for row in side)
                    for side in zip(*pairs, strict=True)
                ]
                for read_secs in (
                    lambda row: row["train_secs"] / row["updates"],
                    lambda row: row["eval_secs"],
                )
            ]
            times = [f"{mine:.3g} / {theirs:.3g}" for mine, theirs in secs]
            lead = " / ".join(f"{theirs / mine:.2f}x" for mine, theirs in secs)
        metric = benchmark.metric.removeprefix("eval_")
        runs = f"{len(ours)} / {len(peers)}"
        print(
            f"| {name} | {metric} | {runs} | {shown[0]} | {shown[1]} | {verdict} | {threads} "
            f"| {times[0]} | {times[1]} | {lead} |"
        )
    print(flush=True)


def print_variants(rows: list[dict], variants: list[str], beside: str = ""):
    """Prints our runs of variants beside our runs of another one, of the seeds that both have."""
    print("\n| task | metric | with | seeds | without | with it | difference | standard errors |")
    print("|---|---|---|--:|--:|--:|--:|--:|")
    for (name, benchmark), variant in itertools.product(tasks.BENCHMARKS.items(), variants):
        plain, varied = (
            {
                row["seed"]: row["results"][benchmark.metric]
                * (1.0 if benchmark.is_percentage else 100.0)
                for row in rows
                if (row["task"], row["side"], row["variant"]) == (name, "ours", which)
            }
            for which in (beside, variant)
        )
        seeds = sorted(plain.keys() & varied.keys())
        if not seeds:
            continue
        sides = [[side[seed] for seed in seeds] for side in (plain, varied)]
        difference, errors = statistics.mean(sides[1]) - statistics.mean(sides[0]), ""
        if len(seeds) > 1:
            error = math.sqrt(sum(statistics.variance(side) / len(side) for side in sides))
            errors = f"{difference / error:+.1f}"
        shown = " | ".join(map(_mean_and_deviation, sides))
        options = variant.strip("{}").replace('"', "")
        metric = benchmark.metric.removeprefix("eval_")
        print(
            f"| {name} | {metric} | {options} | {len(seeds)} | {shown} | {difference:+.1f} | "
            f"{errors} |"
        )
    print(flush=True)


def print_all_variants(rows: list[dict]):
    """Prints all variants of a file of our runs beside those without options."""
    print_variants(rows, sorted({row["variant"] for row in rows if row["variant"]}))


def _pairs(ours: list[dict], peers: list[dict]) -> list[tuple[dict, dict]]:
    """Returns pairs of runs with comparable seconds: equal seeds and equal numbers of cores.

    Only the pairs with the commonest number of cores are returned.
    """
    pairs = [
        (mine, theirs)
        for mine in ours
        for theirs in peers
        if (mine["seed"], mine["num_threads"]) == (theirs["seed"], theirs["num_threads"])
    ]
    counts = collections.Counter(mine["num_threads"] for mine, _ in pairs)
    most = max(counts, key=lambda threads: (counts[threads], threads), default=None)
    return [pair for pair in pairs if pair[0]["num_threads"] == most]


def _mean_and_deviation(values: list[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{deviation}"


def one_run(flags, name: str, side: str, seed: int):
    """Makes one run and prints its row as the last line."""
    import logging

    from absl import logging as absl_logging

    absl_logging.set_verbosity(logging.INFO)
    benchmark = tasks.BENCHMARKS[name]
    with contextlib.ExitStack() as stack:
        if flags.keep_models and side == "ours":
            output_dir = flags.keep_models / name.replace(" ", "-")
            # Of another seed, or of a run that was killed.
            shutil.rmtree(output_dir, ignore_errors=True)
        else:
            output_dir = stack.enter_context(tempfile.TemporaryDirectory(dir=flags.work_dir))
        more = {"random_seed": seed} | json.loads(flags.more)
        options = tasks.make_options(
            benchmark, flags.work_dir / "data", flags.model, pathlib.Path(output_dir), **more
        )
        if side == "ours":
            row = our_run(benchmark, options)
        else:
            row = peer_run(benchmark, options, flags.model, flags.optimizer)
    row |= {"task": name, "side": side, "seed": seed, "variant": name_variant(flags)}
    row |= {"num_threads": len(os.sched_getaffinity(0)), "device": device_name()}
    print(json.dumps(row), flush=True)


def device_name() -> str:
    """Returns the name of the first GPU, or that of the processor."""
    import tensorflow as tf
    from training_step import machine

    gpus = tf.config.list_physical_devices("GPU")
    return tf.config.experimental.get_device_details(gpus[0])["device_name"] if gpus else machine()


def name_variant(flags) -> str:
    """Returns the options in which a run differs from the runs of the comparison; empty for
    those runs.
    """
    more = "" if flags.more == "{}" else flags.more
    return more + ("" if flags.optimizer == "usual" else flags.optimizer)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=pathlib.Path, required=True, help="folder with glue, squad and so on"
    )
    parser.add_argument(
        "--model", type=pathlib.Path, required=True, help="Hugging Face folder of an encoder"
    )
    parser.add_argument(
        "--work_dir", type=pathlib.Path, required=True, help="folder for the prepared data"
    )
    parser.add_argument(
        "--output", type=pathlib.Path, required=True, help="JSON lines file of the runs"
    )
    parser.add_argument("--tasks", nargs="*", choices=tasks.BENCHMARKS, default=tasks.COMPARED)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--seeds", nargs="+", type=int, help="default: 0, for some tasks 0 to 2")
    parser.add_argument("--cpus", default="0,1", help="cores to run on; each gets one thread")
    parser.add_argument(
        "--more", default="{}", help="other options of our scripts, for both sides, as JSON"
    )
    parser.add_argument(
        "--beside", default="", help="options of the runs to compare with, as given to --more"
    )
    parser.add_argument(
        "--optimizer", choices=OPTIMIZERS, default="usual", help="optimizer of Hugging Face's side"
    )
    parser.add_argument(
        "--keep_models",
        type=pathlib.Path,
        help="folder for the model of each task, of the last seed",
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()

    if flags.one:
        one_run(flags, flags.tasks[0], flags.sides[0], flags.seeds[0])
        return
    os.sched_setaffinity(0, [int(cpu) for cpu in flags.cpus.split(",")])
    flags.work_dir.mkdir(parents=True, exist_ok=True)
    tasks.prepare_data(flags.data, flags.work_dir / "data")
    lines = flags.output.read_text(encoding="utf-8").splitlines() if flags.output.exists() else []
    rows = [json.loads(line) for line in lines]
    done = {(row["task"], row["side"], row["seed"], row["variant"]) for row in rows}
    for name in flags.tasks:
        for seed in flags.seeds or range(tasks.BENCHMARKS[name].num_seeds):
            for side in flags.sides:
                if (name, side, seed, name_variant(flags)) in done:
                    continue
                command = [sys.executable, __file__, *sys.argv[1:], "--one", "--tasks", name]
                command += ["--sides", side, "--seeds", str(seed)]
                ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                rows.append(json.loads(ran.stdout.splitlines()[-1]))
                with flags.output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
                print(json.dumps(rows[-1]), flush=True)
    print_tables([row for row in rows if row["variant"] == name_variant(flags)])
    if name_variant(flags):
        print_variants(rows, [name_variant(flags)], flags.beside)


if __name__ == "__main__":
    main()
