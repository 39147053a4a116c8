#!/usr/bin/env python3
"""Measures what the bar on a terminal costs a training, in processor seconds.

In: batches of random ids, sequences of 128 tokens. Out: a table.

Turns with the bar and turns without it alternate. The bar is called after each update, although a
training calls it about once a second. The processor seconds are those of the whole process, with
the thread that draws the bar. A first turn of each kind, which fills caches, does not count.

    python benchmarks/progress_bar.py --size=mini
"""

import argparse
import os
import pathlib
import pty
import statistics
import subprocess
import sys
import tempfile
import time
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from benchmarks.saving import Training, training
from benchmarks.training_step import prepare_threads


def log_to_terminal() -> subprocess.Popen:
    """Sends the log to a new terminal, and returns the process that reads it."""
    from absl import flags, logging

    flags.FLAGS(sys.argv[:1])
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    reader_end, terminal = pty.openpty()
    os.environ["TERM"] = "xterm-256color"
    logging.get_absl_handler().python_handler.stream = os.fdopen(terminal, "w")
    with open(os.devnull, "wb") as nowhere:
        return subprocess.Popen(["cat"], stdin=reader_end, stdout=nowhere)


def run_turn(run: Training, num_steps: int, folder: str, has_bar: bool) -> float:
    """Makes some updates, and returns the processor seconds."""
    from official_bert.io.progress import updated_line
    from official_bert.training.reporting import TrainingReport

    options = types.SimpleNamespace(output_dir=folder, train_batch_size=run.objective.batch_size)
    last_step = int(run.optimizer.global_step.numpy()) + num_steps
    report = TrainingReport(options, last_step + 1, run.objective, run.optimizer)
    start_secs = time.process_time()
    for _ in range(num_steps):
        report.add(1, run.update())
        if has_bar:
            report.show_progress()
    end_secs = time.process_time()
    updated_line.wipe()
    return end_secs - start_secs


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpus", default="0,1", help="cores to run on; each gets one thread")
    parser.add_argument("--size", default="mini", help="the name of a size of BertConfig")
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--num_steps", type=int, default=30, help="updates in a turn")
    parser.add_argument("--rounds", type=int, default=8)
    flags = parser.parse_args()
    prepare_threads([int(cpu) for cpu in flags.cpus.split(",")], want_peer=False)

    run = training(flags.size, flags.batch_size)
    reader = log_to_terminal()
    secs = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        for round_number in range(flags.rounds + 1):
            # Each kind is the first one in half of the rounds.
            for has_bar in (False, True) if round_number % 2 else (True, False):
                turn_secs = run_turn(run, flags.num_steps, folder, has_bar)
                if round_number:
                    secs[has_bar].append(turn_secs)
    reader.kill()
    ratios = [bar / plain for plain, bar in zip(secs[False], secs[True], strict=True)]
    print("| model | processor s of an update without bar | with bar | median ratio |")
    print("|---|--:|--:|--:|")
    plain, bar = (statistics.median(secs[kind]) / flags.num_steps for kind in (False, True))
    print(f"| {flags.size} | {plain:.4f} | {bar:.4f} | {statistics.median(ratios):.4f} |")


if __name__ == "__main__":
    main()
