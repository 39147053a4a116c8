#!/usr/bin/env python3
"""Measures memory and time of embedding a million short texts, with a kill and a resumption at half
of them.

In: a folder with corpus, as benchmarks/embeddings.py reads it, and a folder of
sentence-transformers. Out: a table, and a line of JSON in --output.

    python benchmarks/many_texts.py --data=data --model=minilm --work_dir=work \
        --output=many_texts.jsonl

A text has 2 to 12 neighbouring words of Wikipedia. `official-bert predict --vectors_file` encodes
them. At half of the texts it gets SIGKILL, and the same command resumes. The memory is the peak of
the process in each tenth of the texts. At the end some rows are compared with
`SentenceEncoder.encode`.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np
from finetuning import device_name

ROOT = pathlib.Path(__file__).resolve().parent.parent
NUM_TENTHS = 10
MOST_WORDS = 12  # of a text
NUM_COMPARED = 1000
POLL_SECS = 0.2
LIMIT_SECS = 3 * 3600


def write_texts(data: pathlib.Path, path: pathlib.Path, count: int):
    """Writes short texts, one a line."""
    draws = random.Random(0)
    words = []
    for source in sorted((data / "corpus").glob("wiki_*.txt")):
        words += source.read_text(encoding="utf-8").split()
    if len(words) <= MOST_WORDS:
        sys.exit(f"{data}/corpus: has no wiki_*.txt with text")
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            start = draws.randrange(len(words) - MOST_WORDS)
            end = start + draws.randint(2, MOST_WORDS)
            file.write(" ".join(words[start:end]) + "\n")


def count_encoded_rows(progress: pathlib.Path) -> int:
    """Returns the number of texts whose vectors are on the disk."""
    try:
        text = progress.read_text(encoding="utf-8")
    except FileNotFoundError:  # The command has not begun, or has ended.
        return 0
    lines = text.split("\n")[:-1]  # The last line may be half written.
    return json.loads(lines[-1])[0] if lines else 0


def read_memory_mb(pid: int) -> float:
    """Returns the resident memory of a process."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0  # it has ended


def run_until(flags, texts: pathlib.Path, vectors: pathlib.Path, last_row: int) -> dict:
    """Runs the command to its end, or until as many rows are there.

    Returns:
        The row at which the run starts, its seconds, and the peak memory of each tenth in MB.
    """
    command = [sys.executable, "-m", "official_bert", "predict", f"--model={flags.model}"]
    command += [f"--input_file={texts}", f"--vectors_file={vectors}"]
    progress = vectors.with_name(f".{vectors.name}.encoding") / "progress.jsonl"
    memory = [0.0] * NUM_TENTHS
    start = time.monotonic()
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)})
    rows = count_encoded_rows(progress)
    first_row = rows
    while process.poll() is None and rows < last_row:
        if time.monotonic() - start > LIMIT_SECS:
            process.kill()
            sys.exit(f"{rows:,} texts were encoded after {LIMIT_SECS} s")
        time.sleep(POLL_SECS)
        rows = max(rows, count_encoded_rows(progress))
        tenth = min(NUM_TENTHS - 1, rows * NUM_TENTHS // flags.num_texts)
        memory[tenth] = max(memory[tenth], read_memory_mb(process.pid))
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
        process.wait()
    elif process.returncode:
        sys.exit(f"the command ended with status {process.returncode}")
    elif last_row <= flags.num_texts:
        sys.exit("the command ended before it was killed; give more --num_texts")
    return {
        "first_row": first_row,
        "secs": time.monotonic() - start,
        "memory_mb": [round(value) for value in memory],
    }


def compute_largest_difference(
    model: pathlib.Path, texts: pathlib.Path, vectors: np.ndarray
) -> float:
    """Compares some rows with the vectors that a SentenceEncoder computes for their texts."""
    from official_bert import SentenceEncoder

    rows = np.linspace(0, len(vectors), NUM_COMPARED, endpoint=False).astype(int)
    lines = texts.read_text(encoding="utf-8").splitlines()
    expected = SentenceEncoder(str(model)).encode([lines[row] for row in rows])
    return float(np.abs(vectors[rows] - expected).max())


def print_table(row: dict):
    print("\n| run | texts | seconds | texts a second | memory of each tenth, MB |")
    print("|---|--:|--:|--:|---|")
    ends = [row["resumed"]["first_row"], row["num_texts"]]
    for name, end in zip(("killed", "resumed"), ends, strict=True):
        run = row[name]
        count = end - run["first_row"]
        memory = ", ".join(f"{value:,}" if value else "–" for value in run["memory_mb"])
        print(f"| {name} | {count:,} | {run['secs']:.0f} | {count / run['secs']:,.0f} | {memory} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with corpus")
    parser.add_argument(
        "--model", type=pathlib.Path, required=True, help="folder of sentence-transformers"
    )
    parser.add_argument(
        "--work_dir", type=pathlib.Path, required=True, help="folder of the texts and the vectors"
    )
    parser.add_argument(
        "--output", type=pathlib.Path, required=True, help="JSON lines file of the rows"
    )
    parser.add_argument("--num_texts", type=int, default=1_000_000)
    flags = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    flags.work_dir.mkdir(parents=True, exist_ok=True)
    texts = flags.work_dir / "texts.txt"
    vectors = flags.work_dir / "vectors.npy"
    shutil.rmtree(vectors.with_name(f".{vectors.name}.encoding"), ignore_errors=True)
    write_texts(flags.data, texts, flags.num_texts)
    load = os.getloadavg()[0]
    runs = {
        "killed": run_until(flags, texts, vectors, flags.num_texts // 2),
        "resumed": run_until(flags, texts, vectors, flags.num_texts + 1),
    }
    written = np.load(vectors, mmap_mode="r")
    row = {
        "num_texts": len(written),
        "width": written.shape[1],
        **runs,
        "largest_difference": compute_largest_difference(flags.model, texts, written),
        "load": load,
        "device": device_name(),
    }
    with flags.output.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print_table(row)


if __name__ == "__main__":
    main()
