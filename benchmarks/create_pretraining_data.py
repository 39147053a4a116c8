#!/usr/bin/env python3
"""Measures the speed and memory of create_pretraining_data.py on the user's text.

The benchmark runs the script as a process, on the first input file and then on all files. For each run it prints the
records per second and the peak memory (PSS, summed over the process and its children), then the additional memory per
megabyte of text. It repeats this for each number of tokenizing processes in --num_workers.

    python benchmarks/create_pretraining_data.py --input_file=wiki_00.txt,wiki_01.txt --vocab_file=vocab.txt
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "create_pretraining_data.py"
# Google's script on another machine: 6 MB of English Wikipedia, length 128, dupe factor 5.
ORIGINAL = "the original (recorded elsewhere) |  6.0 |  47.5 |   1700 |   834 |        80"
_SECS_BETWEEN_SAMPLES = 0.05


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input_file", required=True, help="comma separated text files, two at least")
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--dupe_factor", type=int, default=5)
    parser.add_argument("--num_workers", type=int, nargs="+", default=[1, 2])
    args = parser.parse_args()
    names = args.input_file.split(",")
    if len(names) < 2:
        parser.error("--input_file needs two files at least, to show how memory grows")

    print("generator                         | MB text | s | records/s | peak MB | MB per MB of text")
    print(ORIGINAL)
    for num_workers in args.num_workers:
        text_mb, peak_mb = [], []
        for count in (1, len(names)):
            text_mb.append(sum(os.path.getsize(name) for name in names[:count]) / 1e6)
            seconds, records, peak = measure(names[:count], num_workers, args)
            peak_mb.append(peak)
            growth = f"{(peak_mb[1] - peak_mb[0]) / (text_mb[1] - text_mb[0]):9.1f}" if count > 1 else ""
            print(
                f"exact, {num_workers} tokenizing process(es)".ljust(33),
                f"{text_mb[-1]:5.1f} | {seconds:5.1f} | {records / seconds:6.0f} | {peak:5.0f} | {growth}",
                sep=" | ",
                flush=True,
            )


def measure(names: list[str], num_workers: int, args) -> tuple[float, int, float]:
    """Returns the seconds, records and peak megabytes of one run, start-up included."""
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder, "log"), "w+") as log:
        start_secs = time.monotonic()
        process = subprocess.Popen(
            [
                sys.executable,
                str(SCRIPT),
                f"--input_file={','.join(names)}",
                f"--output_file={folder}/out.tfrecord",
                f"--vocab_file={args.vocab_file}",
                f"--max_seq_length={args.max_seq_length}",
                f"--dupe_factor={args.dupe_factor}",
                f"--num_workers={num_workers}",
            ],
            stderr=log,
        )
        peak_mb = 0.0
        while process.poll() is None:
            peak_mb = max(peak_mb, tree_mb(process.pid))
            time.sleep(_SECS_BETWEEN_SAMPLES)
        seconds = time.monotonic() - start_secs
        log.seek(0)
        text = log.read()
    if process.returncode:
        sys.exit(text)
    return seconds, int(re.search(r"Wrote (\d+) total instances", text).group(1)), peak_mb


def tree_mb(pid: int) -> float:
    """Returns the proportional memory (PSS) of a process and all its descendants, in megabytes."""
    total_kb, waiting = 0, [pid]
    while waiting:
        process = pathlib.Path("/proc", str(waiting.pop()))
        try:
            total_kb += int(
                re.search(r"^Pss:\s+(\d+)", (process / "smaps_rollup").read_text(), re.MULTILINE).group(1)
            )
            for task in (process / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (OSError, AttributeError):  # the process has just ended
            continue
    return total_kb * 1024 / 1e6


if __name__ == "__main__":
    main()
