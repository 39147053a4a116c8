#!/usr/bin/env python3
"""Measures the speed and memory of create_pretraining_data.py on the user's text.

The benchmark runs the script as a process, with each generator, on the first input file, the first
two, the first four and so on. For each it prints seconds, processor seconds, records per second and
peak memory (PSS, summed over the process and its children): the medians of several rounds, in which
the generators take turns. On a machine with other work, the processor seconds are what can be
compared.

    python benchmarks/create_pretraining_data.py --input_file=wiki_00.txt,wiki_01.txt --vocab_file=vocab.txt
"""

import argparse
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import typing

from process_memory import tree_mb

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "create_pretraining_data.py"
# Google's script on another machine: 6 MB of English Wikipedia, length 128, dupe factor 5.
ORIGINAL = "| the original (recorded elsewhere) | 6.0 | 47.5 | | 1,700 | | 834 |"
_SECS_BETWEEN_SAMPLES = 0.05


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input_file", required=True, help="comma separated text files")
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--dupe_factor", type=int, default=5)
    parser.add_argument(
        "--num_workers", type=int, nargs="+", default=[1, 2], help="of the generator sharded"
    )
    parser.add_argument("--num_rounds", type=int, default=3)
    args = parser.parse_args()
    names = args.input_file.split(",")
    settings = [("exact", 1), *(("sharded", num_workers) for num_workers in args.num_workers)]
    counts = [count for count in (1 << k for k in range(20)) if count <= len(names)]
    runs = {(setting, count): [] for setting in settings for count in counts}
    for _ in range(args.num_rounds):
        for (setting, count), measured in runs.items():
            measured.append(measure(names[:count], *setting, args))
            print(*setting, count, measured[-1], file=sys.stderr, flush=True)

    print("| generator | MB of text | s | processor s | records/s | times exact | peak MB |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    print(ORIGINAL)
    speeds = {
        key: statistics.median(run.speed for run in measured) for key, measured in runs.items()
    }
    for ((generator, num_workers), count), measured in runs.items():
        speed = speeds[(generator, num_workers), count]
        text_mb = sum(os.path.getsize(name) for name in names[:count]) / 1e6
        print(
            f"| `{generator}`, {num_workers} process(es) | {text_mb:.1f} | "
            f"{statistics.median(run.secs for run in measured):.1f} | "
            f"{statistics.median(run.cpu_secs for run in measured):.1f} | {speed:,.0f} | "
            f"{speed / speeds[('exact', 1), count]:.1f} | "
            f"{max(run.peak_mb for run in measured):.0f} |"
        )


class Run(typing.NamedTuple):
    """One run: its seconds, start-up included, those of all its processes, its records, and its
    peak memory.
    """

    secs: float
    cpu_secs: float
    records: int
    peak_mb: float

    @property
    def speed(self) -> float:
        return self.records / self.secs


def measure(names: list[str], generator: str, num_workers: int, args) -> Run:
    """Runs a generator once."""
    command = [
        sys.executable,
        str(SCRIPT),
        f"--generator={generator}",
        f"--num_workers={num_workers}",
    ]
    command += [f"--input_file={','.join(names)}", f"--vocab_file={args.vocab_file}"]
    command += [f"--max_seq_length={args.max_seq_length}", f"--dupe_factor={args.dupe_factor}"]
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder, "log"), "w+") as log:
        start_secs, start_cpu_secs = time.monotonic(), measure_child_cpu_secs()
        process = subprocess.Popen([*command, f"--output_file={folder}/out.tfrecord"], stderr=log)
        peak_mb = 0.0
        while process.poll() is None:
            peak_mb = max(peak_mb, tree_mb(process.pid))
            time.sleep(_SECS_BETWEEN_SAMPLES)
        secs = time.monotonic() - start_secs
        log.seek(0)
        text = log.read()
    if process.returncode:
        sys.exit(text)
    cpu_secs = measure_child_cpu_secs() - start_cpu_secs
    return Run(
        secs, cpu_secs, int(re.search(r"Wrote (\d+) total instances", text).group(1)), peak_mb
    )


def measure_child_cpu_secs() -> float:
    """Returns the processor seconds of all processes that this one has started and that have
    ended.
    """
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
