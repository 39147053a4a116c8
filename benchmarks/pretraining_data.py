#!/usr/bin/env python3
"""Pre-trains the same small model in several ways and compares what it has learnt about held-out
text.

Out: tables, and a line of JSON in --output for each finished run. Runs that this file already
contains are not repeated; --table makes none at all.

There are three questions. Do the generator `sharded`, and masks that are drawn while training,
teach as much as the generator `exact`? Does the model learn as much in bfloat16? And why does
little text not teach next sentences? The text is that of the quickstart, and so is the model; it
takes 3,200 updates. What differs is said in `ARMS`. Each run is a process of its own. A seed is
that of the records and of the training. All runs of a text are evaluated in float32 on the same
held-out records.

    python benchmarks/pretraining_data.py --work_dir=work
"""

import argparse
import dataclasses
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
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))

from quickstart import SETTINGS, baselines, results, write_config

from official_bert.training import run_log

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results/pretraining_data.jsonl"
SETTING = dataclasses.replace(SETTINGS["full"], num_train_steps=3200)
LENGTHS = {
    "max_seq_length": SETTING.max_seq_length,
    "max_predictions_per_seq": SETTING.max_predictions_per_seq,
}
METRICS = {"masked_lm_accuracy": "masked LM", "next_sentence_accuracy": "next sentence"}
# The whole documentation, and random parts of it.
ALL, SIXTH, SAMPLE = "all", "sixth", "sample"
SHARES = {SIXTH: 6, SAMPLE: 24}


class Arm(NamedTuple):
    """What differs between runs.

    Attributes:
        title: the row's title in the table.
        text: the text that the records are made of.
        generator: the generator of the records.
        dynamic: whether masks are drawn while training.
        dupe_factor: the number of passes of the generator over the text.
        dtype: the value of --dtype in training.
        has_original_order: whether training reads the files in the original's order.
        seeds: the seeds of the runs.
    """

    title: str
    text: str = ALL
    generator: str = "sharded"
    dynamic: bool = True
    dupe_factor: int = SETTING.dupe_factor
    dtype: str = "float32"
    has_original_order: bool = False
    seeds: tuple[int, ...] = (1,)


# The 3,200 updates read each record of 8 passes over all text once, as they do with 48 passes over
# a sixth of it.
ARMS = {
    "exact": Arm("`exact`", generator="exact", dynamic=False, seeds=(1, 2, 3)),
    "sharded": Arm("`sharded`", dynamic=False, seeds=(1, 2, 3)),
    "files_twice": Arm(
        "`sharded`, files in the original's order",
        dynamic=False,
        has_original_order=True,
        seeds=(1, 3),
    ),
    "dynamic": Arm(
        "`sharded`, dynamic masks, files in the original's order",
        has_original_order=True,
        seeds=(1, 2, 3),
    ),
    "bfloat16": Arm(
        "`exact`, in bfloat16", generator="exact", dynamic=False, dtype="bfloat16", seeds=(1, 2, 3)
    ),
    "sample_dynamic": Arm("a 24th, 8 passes, dynamic masks", SAMPLE),
    "sixth_fresh": Arm("a sixth, 48 passes, dynamic masks", SIXTH, dupe_factor=48),
}
COMPARED = "exact", "sharded", "files_twice", "dynamic", "bfloat16"
ABLATION = "dynamic", "sixth_fresh", "sample_dynamic"


def script(name: str, **flags) -> list[str]:
    return [
        sys.executable,
        "-m",
        "official_bert",
        name,
        *(f"--{flag}={flags[flag]}" for flag in flags),
    ]


def run(command: list[str]):
    """Runs a script, and ends with the last lines of its output if it fails."""
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ran.returncode:
        sys.exit(ran.stdout[-2000:])


def prepare(work_dir: pathlib.Path):
    """Makes a folder for each text, one vocabulary for all of them, and the held-out records."""
    (work_dir / ALL).mkdir(parents=True, exist_ok=True)
    files = [f"--{part}_file={work_dir / ALL / part}.txt" for part in ("train", "held_out")]
    run([sys.executable, str(ROOT / "examples" / "quickstart_corpus.py"), *files])
    vocab = {"output_file": work_dir / ALL / "vocab.txt", "vocab_size": SETTING.vocab_size}
    run(script("build_vocab", input_file=work_dir / ALL / "train.txt", **vocab))

    whole = (work_dir / ALL / "train.txt").read_text(encoding="utf-8")  # documents in random order
    for text, divisor in SHARES.items():
        (work_dir / text).mkdir(exist_ok=True)
        part = whole[: whole.index("\n\n", len(whole) // divisor) + 1]
        (work_dir / text / "train.txt").write_text(part, encoding="utf-8")
        shutil.copy(work_dir / ALL / "held_out.txt", work_dir / text)
    for text in (ALL, *SHARES):
        if text != ALL:
            shutil.copy(work_dir / ALL / "vocab.txt", work_dir / text)
        make_records(work_dir / text, "held_out", dupe_factor=2)


def make_records(folder: pathlib.Path, part: str, **flags):
    """Makes the records of a part of a text beside it."""
    files = {"input_file": folder / f"{part}.txt", "output_file": folder / f"{part}.tfrecord"}
    run(
        script(
            "create_pretraining_data", vocab_file=folder / "vocab.txt", **files, **LENGTHS, **flags
        )
    )


def one_run(name: str, seed: int, work_dir: pathlib.Path) -> dict:
    """Makes the records of an arm, trains, evaluates and returns the row."""
    arm, start = ARMS[name], time.perf_counter()
    folder = work_dir / arm.text
    for old in folder.glob("train.tfrecord*"):  # of another arm
        old.unlink()
    flags = {"generator": arm.generator, "dupe_factor": arm.dupe_factor, "random_seed": seed}
    if arm.dynamic:
        flags["dynamic_masking"] = True
    make_records(folder, "train", **flags)
    write_config(SETTING, folder)

    model = folder / "model"
    shutil.rmtree(model, ignore_errors=True)  # of a run that was killed
    common = {"output_dir": model, "bert_config_file": folder / "bert_config.json"} | LENGTHS
    common["vocab_file"] = folder / "vocab.txt"
    flags = {
        "do_train": True,
        "dynamic_masking": arm.dynamic,
        "dtype": arm.dtype,
        "random_seed": seed,
    }
    flags["file_order"] = "original" if arm.has_original_order else "each_pass"
    for flag in ("num_train_steps", "num_warmup_steps", "train_batch_size", "learning_rate"):
        flags[flag] = getattr(SETTING, flag)
    sharded = "-?????-of-?????" if arm.generator == "sharded" else ""
    run(
        script("run_pretraining", input_file=folder / f"train.tfrecord{sharded}", **common, **flags)
    )
    held_out = {
        "input_file": folder / "held_out.tfrecord",
        "eval_batch_size": 64,
        "max_eval_steps": 0,
    }
    run(script("run_pretraining", do_eval=True, **held_out, **common))

    logged = run_log.read(str(model), run_log.TRAIN)
    last = [line for line in logged if line["step"] > 0.9 * SETTING.num_train_steps]
    scores, baseline = results(model), baselines(folder)
    row = {"arm": name, "seed": seed, "secs": round(time.perf_counter() - start, 1)}
    for metric in METRICS:
        row[metric] = scores[metric]
        row[f"train_{metric}"] = round(statistics.mean(line[metric] for line in last), 5)
        row[f"baseline_{metric}"] = round(getattr(baseline, metric), 5)
    shutil.rmtree(model)
    return row


def print_comparison(rows: list[dict]):
    """Prints the means of the arms with several seeds, and differences from `exact` with their
    standard errors.
    """
    print(
        "\n| run | seeds | metric | mean | standard deviation | against `exact` | standard errors |"
    )
    print("|---|--:|---|--:|--:|--:|--:|")
    for metric, title in METRICS.items():
        values = {name: [row[metric] for row in rows if row["arm"] == name] for name in COMPARED}
        for name, seed_values in values.items():
            if len(seed_values) < 2:
                continue
            mean, deviation = statistics.mean(seed_values), statistics.stdev(seed_values)
            line = f"| {ARMS[name].title} | {len(seed_values)} | {title} | {mean:.2%} "
            line += f"| {deviation:.2%} |"
            if name != "exact" and len(values["exact"]) > 1:
                difference = mean - statistics.mean(values["exact"])
                pair = seed_values, values["exact"]
                error = math.sqrt(sum(statistics.variance(each) / len(each) for each in pair))
                print(f"{line} {difference:+.2%} | {difference / error:+.1f} |")
            else:
                print(f"{line} | |")


def print_ablation(rows: list[dict]):
    """Prints what the arms of the ablation have learnt, on their training records and on
    held-out ones.
    """
    print(
        "\n| records and model | masked LM, training | held out | next sentence, training | held "
        "out | baseline |"
    )
    print("|---|--:|--:|--:|--:|--:|")
    for row in rows:
        if row["seed"] == 1 and row["arm"] in ABLATION:
            cells = [row[f"{part}{metric}"] for metric in METRICS for part in ("train_", "")]
            cells.append(row["baseline_next_sentence_accuracy"])
            print(
                f"| {ARMS[row['arm']].title} | "
                + " | ".join(f"{cell:.1%}" for cell in cells)
                + " |"
            )
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work_dir", type=pathlib.Path, help="folder for texts, records and models"
    )
    parser.add_argument(
        "--output", type=pathlib.Path, default=RESULTS, help="JSON lines file of the runs"
    )
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[1, 2, 3], help="seeds of the arms to run"
    )
    parser.add_argument("--table", action="store_true", help="only print the tables")
    flags = parser.parse_args()

    lines = flags.output.read_text(encoding="utf-8").splitlines() if flags.output.exists() else []
    rows = [json.loads(line) for line in lines]
    if not flags.table:
        if not flags.work_dir:
            parser.error("--work_dir is needed for runs")
        prepare(flags.work_dir)
        make_runs(flags, rows)
    rows.sort(key=lambda row: (list(ARMS).index(row["arm"]), row["seed"]))
    print_comparison(rows)
    print_ablation(rows)


def make_runs(flags, rows: list[dict]):
    """Makes the runs that are missing; all arms of a seed follow each other."""
    done = {(row["arm"], row["seed"]) for row in rows}
    for seed in flags.seeds:
        for name in flags.arms:
            if seed in ARMS[name].seeds and (name, seed) not in done:
                row = one_run(name, seed, flags.work_dir)
                rows.append(row)
                with flags.output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
