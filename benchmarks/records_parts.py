#!/usr/bin/env python3
"""Measures parts of records: create_pretraining_data.py --part on texts that grow with the number
of parts.

In: text files with one sentence a line, and books, which are repeated. Out: a line of JSON in
--output for each setting: seconds and processor seconds of all parts, records, the seconds in which
a part distributes its documents and in which it makes its shards, and its peak memory (PSS). The
parts run two at a time, or one with two processes; `--table` prints the rows.

    python benchmarks/records_parts.py --input_file=wiki_00.txt --prose_file=novel.txt \
        --vocab_file=vocab.txt --work_dir=work
"""

import argparse
import datetime
import itertools
import json
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from process_memory import tree_mb

from official_bert.data.pretraining.text_formats import line_reader

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results/records_parts.jsonl"
FILE_BYTES = 6_000_000
# Parts, processes of a part, parts at a time, and passes over the text.
SETTINGS = ((1, 1, 1, 1), (1, 2, 1, 1), (2, 1, 2, 1), (4, 1, 2, 1), (1, 1, 1, 10), (4, 1, 2, 10))
# The log lines at which a part has read its flags, has distributed its text, and has all its files.
STAGES = (r"\*\*\* Reading from input files", r"\d+ documents in \d+ shards", r"Wrote \d+ total")
TIME = r"^I\d{4} (\d\d):(\d\d):(\d\d\.\d+) .*?\] "


def prepare(flags, folder: pathlib.Path, num_files: int) -> list[pathlib.Path]:
    """Returns files of about FILE_BYTES, each with whole documents, from the texts in turn; it
    writes them where they do not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:05}.txt" for number in range(num_files)]
    if paths[-1].exists():
        return paths
    lines = itertools.chain.from_iterable(
        read_lines(path)
        for path, read_lines in itertools.cycle(
            [(path, line_reader("text")) for path in flags.input_file]
            + [(path, line_reader("prose")) for path in flags.prose_file]
        )
    )
    for path in paths:
        num_bytes = 0
        with open(path, "w", encoding="utf-8") as file:
            for line in lines:
                num_bytes += file.write(f"{line}\n")
                if num_bytes >= FILE_BYTES and not line:
                    break
    return paths


def seconds(match: re.Match) -> float:
    hours, minutes, secs = map(float, match.groups())
    return 3600 * hours + 60 * minutes + secs


def run_part(
    flags, text: pathlib.Path, out: pathlib.Path, part: str, num_workers: int, passes: int
) -> dict:
    """Makes a part in a process; returns its seconds by stage, its records and its memory."""
    command = [
        sys.executable,
        ROOT / "create_pretraining_data.py",
        "--generator=sharded",
        f"--part={part}",
        f"--input_file={text}/*.txt",
        f"--output_file={out}/out",
        f"--vocab_file={flags.vocab_file}",
        f"--num_workers={num_workers}",
        "--max_seq_length=128",
        f"--dupe_factor={passes}",
    ]
    log_file = out / f"{part.replace('/', '-')}.log"
    start_secs, peak_mb = time.monotonic(), 0.0
    with open(log_file, "w") as log:
        process = subprocess.Popen(command, stderr=log)
        while process.poll() is None:
            peak_mb = max(peak_mb, tree_mb(process.pid))
            time.sleep(0.1)
    secs = time.monotonic() - start_secs
    log = log_file.read_text()
    if process.returncode:
        sys.exit(log)
    begin, distributed, end = (
        seconds(re.search(TIME + stage, log, re.MULTILINE)) for stage in STAGES
    )
    return {
        "secs": secs,
        "distribute_secs": distributed - begin,
        "make_secs": end - distributed,
        "peak_mb": peak_mb,
        "records": int(re.search(r"Wrote (\d+) total", log)[1]),
    }


def measure(flags, num_parts: int, num_workers: int, at_a_time: int, passes: int) -> dict:
    """Makes all parts, some at a time, and returns the row."""
    text, out = flags.work_dir / "text", flags.work_dir / "out"
    for folder in (text, out):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    num_files = round(num_parts * flags.part_mb * 1e6 / FILE_BYTES)
    for path in prepare(flags, flags.work_dir / "all", num_files):
        (text / path.name).symlink_to(path.resolve())
    text_mb = sum(path.stat().st_size for path in text.iterdir()) / 1e6
    start_secs, start_cpu_secs = time.monotonic(), child_cpu_secs()
    waiting, finished = list(range(1, num_parts + 1)), []

    def make():
        while waiting:
            number = waiting.pop(0)
            part = f"{number}/{num_parts}"
            finished.append(run_part(flags, text, out, part, num_workers, passes))

    threads = [threading.Thread(target=make) for _ in range(at_a_time)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    row = {
        "date": datetime.date.today().isoformat(),
        "processor": flags.processor,
        "parts": num_parts,
        "workers": num_workers,
        "at_a_time": at_a_time,
        "passes": passes,
        "text_mb": round(text_mb, 1),
        "secs": round(time.monotonic() - start_secs, 2),
        "cpu_secs": round(child_cpu_secs() - start_cpu_secs, 2),
        "records": sum(part["records"] for part in finished),
        "peak_mb": round(max(part["peak_mb"] for part in finished)),
    }
    for name in ("distribute_secs", "make_secs"):
        row[name] = round(sum(part[name] for part in finished), 2)
    row["start_secs"] = round(
        sum(part["secs"] - part["distribute_secs"] - part["make_secs"] for part in finished), 2
    )
    return row


def child_cpu_secs() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def print_table(rows: list[dict]):
    """Prints a line for each row; the seconds of the stages are means of a part."""
    print(
        "| processor | parts | processes of a part | passes | MB of text | s | processor s "
        "| records a processor second | start of a part, s | distributes, s | makes, s "
        "| peak MB of a part |"
    )
    print("|---|" + "--:|" * 11)
    for row in rows:
        stages = (row[f"{stage}_secs"] / row["parts"] for stage in ("start", "distribute", "make"))
        cells = [row["processor"], row["parts"], row["workers"], row["passes"]]
        cells += [f"{row['text_mb']:.0f}"]
        cells += [f"{row['secs']:.1f}"]
        cells += [f"{row['cpu_secs']:.1f}", f"{row['records'] / row['cpu_secs']:,.0f}"]
        cells += [f"{secs:.1f}" for secs in stages]
        print(f"| {' | '.join(map(str, [*cells, row['peak_mb']]))} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input_file", nargs="+", default=[], help="one sentence a line")
    parser.add_argument("--prose_file", nargs="+", default=[], help="books")
    parser.add_argument("--vocab_file")
    parser.add_argument("--work_dir", type=pathlib.Path)
    parser.add_argument("--processor", default="", help="its name in the rows, such as AVX2")
    parser.add_argument("--part_mb", type=float, default=100)
    parser.add_argument("--settings", type=int, nargs="+", default=range(len(SETTINGS)))
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="only print the table")
    flags = parser.parse_args()
    if not flags.table:
        for number in flags.settings:
            row = measure(flags, *SETTINGS[number])
            with flags.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    lines = flags.output.read_text(encoding="utf-8").splitlines()
    print_table([json.loads(line) for line in lines])


if __name__ == "__main__":
    main()
