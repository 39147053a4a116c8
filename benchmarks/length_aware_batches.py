#!/usr/bin/env python3
"""Measures the time that padding to the longest example of a batch saves: scripts with --length_aware_batches or not.

In: a folder of real data and a Hugging Face encoder. Out: a table, and a line of JSON in --output for each finished
run. Runs that this file already contains are not repeated.

The benchmark trains and evaluates at length 128 on STS-B and CoLA, and predicts at length 384 on SQuAD. Each run is a
process on one core. The seconds are its processor time with tracing, on which other work on the machine has little
influence.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import finetuning
import finetuning_tasks as tasks

# About 27 updates of 32 examples.
CHANGES = {
    "STS-B": {"num_train_epochs": 0.15},
    "CoLA": {"num_train_epochs": 0.1},
    "SQuAD 1.1": {"do_train": False, "max_seq_length": 384},
}


def print_table(rows: list[dict]):
    print("\n| task | what | fixed length, s | length-aware, s | speed-up |\n|---|---|--:|--:|--:|")
    found = {(row["task"], row["length_aware"]): row for row in rows}
    for name in CHANGES:
        for key, what in (("train_cpu_secs", "training"), ("eval_cpu_secs", "evaluation")):
            secs = [found.get((name, aware), {}).get(key) for aware in (False, True)]
            if None not in secs:
                print(f"| {name} | {what} | {secs[0]:.0f} | {secs[1]:.0f} | {secs[0] / secs[1]:.2f}x |")
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with glue, squad and so on")
    parser.add_argument("--model", type=pathlib.Path, required=True, help="Hugging Face folder of an encoder")
    parser.add_argument("--work_dir", type=pathlib.Path, required=True, help="folder for the prepared data")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="JSON lines file of the runs")
    parser.add_argument("--tasks", nargs="*", choices=CHANGES, default=list(CHANGES))
    parser.add_argument("--cpu", type=int, default=0, help="core to run on")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    flags = parser.parse_args()

    if flags.one:
        name, aware = flags.one[0], flags.one[1] == "aware"
        with tempfile.TemporaryDirectory(dir=flags.work_dir) as folder:
            more = CHANGES[name] | {"length_aware_batches": aware, "random_seed": 0}
            data = flags.work_dir / "data"
            options = tasks.options_of(
                tasks.BENCHMARKS[name], data, flags.model, pathlib.Path(folder), **more
            )
            row = finetuning.our_run(tasks.BENCHMARKS[name], options)
        print(json.dumps(row | {"task": name, "length_aware": aware}))
        return
    os.sched_setaffinity(0, [flags.cpu])
    flags.work_dir.mkdir(parents=True, exist_ok=True)
    tasks.prepare_data(flags.data, flags.work_dir / "data")
    lines = flags.output.read_text(encoding="utf-8").splitlines() if flags.output.exists() else []
    rows = [json.loads(line) for line in lines]
    done = {(row["task"], row["length_aware"]) for row in rows}
    for name in flags.tasks:
        for aware in (True, False):
            if (name, aware) not in done:
                command = [
                    sys.executable,
                    __file__,
                    *sys.argv[1:],
                    "--one",
                    name,
                    "aware" if aware else "fixed",
                ]
                ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                rows.append(json.loads(ran.stdout.splitlines()[-1]))
                with flags.output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    print_table(rows)


if __name__ == "__main__":
    main()
