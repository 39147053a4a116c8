#!/usr/bin/env python3
"""Measures the routers of examples/router beside Python's Predictor, one text at a time.

In: a vocabulary; the classifier has random weights and MiniLM's size, on which alone the times
depend. Out: a table, and with --output a line of JSON for each program.

Every program is a process of its own, which gets the next text when it has answered. The programs
take turns in each round. Start-up ends with the first answer. On a busy machine compare the
processor milliseconds. The programs need `make install-routers` and the packages onnx and
onnxruntime.

    python benchmarks/router.py --vocab_file=$MODEL/vocab.txt --output=benchmarks/results/router.jsonl
"""

import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from benchmarks.training_step import machine
from tests.examples import router_programs

ROOT = pathlib.Path(__file__).resolve().parent.parent
LABELS = ["question", "order", "complaint"]
FEWEST_WORDS, MOST_WORDS = 4, 60
NUM_WARM_UP_TEXTS = 10
PREDICTOR_PROGRAM = """
import sys

from official_bert import Predictor

predictor = Predictor(sys.argv[1], batch_size=1)
for line in sys.stdin:
    answer = predictor.classify(line.rstrip("\\n"))
    print(answer["label"], answer["score"], sep="\\t", flush=True)
"""


def make_texts(count: int) -> list[str]:
    """Returns texts of mixed lengths from the words of sample_text.txt."""
    words = (ROOT / "sample_text.txt").read_text(encoding="utf-8").split()
    draws = random.Random(1)
    lengths = [draws.randint(FEWEST_WORDS, MOST_WORDS) for _ in range(count)]
    return [" ".join(draws.choices(words, k=length)) for length in lengths]


def write_model(folder: pathlib.Path, vocab_file: str) -> None:
    """Writes a classifier of MiniLM's size with random weights."""
    import keras

    import official_bert

    tokenizer = official_bert.FullTokenizer(vocab_file, True)
    config = official_bert.BertConfig(
        vocab_size=len(tokenizer.vocab),
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
    )
    keras.utils.set_random_seed(1)
    model = official_bert.BertClassifier(config, len(LABELS))
    model.save_pretrained(str(folder), "huggingface", tokenizer=tokenizer, labels=LABELS)


def export(model: pathlib.Path, export_format: str) -> pathlib.Path:
    """Exports a classifier that reads raw text, and returns the folder of the version."""
    export_dir = model.parent / export_format
    command = [
        *(sys.executable, "-m", "official_bert", "export_saved_model", f"--model={model}"),
        *(f"--export_dir={export_dir}", f"--export_format={export_format}", "--export_text"),
    ]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return export_dir / "1"


class Program(NamedTuple):
    """A program that answers lines, and the words of its command."""

    name: str
    runtime: str
    command: Sequence


def build_programs(folder: pathlib.Path, vocab_file: str) -> list[Program]:
    """Makes the exports, and compiles the programs in folders below one."""
    write_model(folder / "model", vocab_file)
    versions = {
        "TensorFlow": export(folder / "model", "saved_model"),
        "onnxruntime": export(folder / "model", "onnx"),
    }
    builds = {
        ("C", "TensorFlow"): router_programs.build_c,
        ("Go", "TensorFlow"): router_programs.build_go,
        ("Java", "TensorFlow"): router_programs.build_java,
        ("C", "onnxruntime"): router_programs.build_onnx,
    }
    programs = []
    for (name, runtime), build in builds.items():
        build_folder = folder / f"{name}_{runtime}"
        build_folder.mkdir()
        command = build(versions[runtime], build_folder)
        programs.append(Program(name, runtime, [*command, versions[runtime]]))
    for runtime, version in versions.items():
        command = [sys.executable, "-c", PREDICTOR_PROGRAM, version]
        programs.append(Program("Predictor", runtime, command))
    return programs


class Run(NamedTuple):
    """What a process needed, and its answers."""

    start_secs: float
    start_processor_secs: float
    milliseconds: list[float]
    processor_milliseconds: float
    resident_mb: float
    answers: list[tuple[str, float]]


def measure(program: Program, texts: Sequence[str]) -> Run:
    """Starts a program, and hands it one text after the other."""
    start = time.perf_counter()
    process = subprocess.Popen(
        program.command,
        cwd=ROOT,
        env=os.environ | router_programs.VARIABLES,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )

    def answer(text: str) -> tuple[str, float]:
        process.stdin.write(text.encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"{program.name} with {program.runtime}: gave no answer")
        label, probability = line.decode().split("\t")
        return label, float(probability)

    answer(texts[0])
    start_secs = time.perf_counter() - start
    start_processor_secs = read_processor_secs(process.pid)
    for text in texts[:NUM_WARM_UP_TEXTS]:
        answer(text)
    answers = []
    milliseconds = []
    processor_start = read_processor_secs(process.pid)
    for text in texts:
        text_start = time.perf_counter()
        answers.append(answer(text))
        milliseconds.append(1000 * (time.perf_counter() - text_start))
    processor_secs = read_processor_secs(process.pid) - processor_start
    resident_mb = read_resident_mb(process.pid)
    process.stdin.close()
    process.wait(60)
    return Run(
        start_secs=start_secs,
        start_processor_secs=start_processor_secs,
        milliseconds=milliseconds,
        processor_milliseconds=1000 * processor_secs / len(texts),
        resident_mb=resident_mb,
        answers=answers,
    )


def read_processor_secs(pid: int) -> float:
    status = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    fields = status.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_resident_mb(pid: int) -> float:
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def check_answers(runs: Sequence[Run]) -> None:
    """Ends the benchmark if the programs do not agree."""
    for run in runs[1:]:
        for (label, probability), other in zip(runs[0].answers, run.answers, strict=True):
            if abs(probability - other[1]) > 1e-4 or label != other[0]:
                raise SystemExit(f"the programs differ: {label} {probability}, {other}")


def summarize(program: Program, runs: Sequence[Run], flags: argparse.Namespace) -> dict:
    """Returns the row of a program."""
    milliseconds = [value for run in runs for value in run.milliseconds]
    processor = [run.processor_milliseconds for run in runs]
    return {
        "machine": machine(),
        "note": flags.note,
        "program": program.name,
        "runtime": program.runtime,
        "texts": flags.num_texts,
        "rounds": flags.rounds,
        "milliseconds": round(statistics.median(milliseconds), 2),
        "milliseconds_90th_percentile": round(statistics.quantiles(milliseconds, n=10)[-1], 2),
        "processor_milliseconds": round(statistics.median(processor), 2),
        "start_secs": round(statistics.median(run.start_secs for run in runs), 2),
        "start_processor_secs": round(
            statistics.median(run.start_processor_secs for run in runs), 2
        ),
        "resident_mb": round(statistics.median(run.resident_mb for run in runs)),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--vocab_file", required=True, help="the vocabulary, such as BERT's uncased"
    )
    parser.add_argument("--num_texts", type=int, default=200, help="texts a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--note", help="a remark for the rows, such as what else the machine did")
    parser.add_argument("--output", help="JSON lines file that the rows are added to")
    flags = parser.parse_args()
    texts = make_texts(flags.num_texts)
    with tempfile.TemporaryDirectory() as folder:
        programs = build_programs(pathlib.Path(folder), flags.vocab_file)
        rounds = [[measure(program, texts) for program in programs] for _ in range(flags.rounds)]
    check_answers(rounds[0])
    rows = [
        summarize(program, runs, flags)
        for program, runs in zip(programs, zip(*rounds, strict=True), strict=True)
    ]
    columns = list(rows[0])[2:]
    print("|", " | ".join(columns), "|")
    print("|---|---|", "--:|" * (len(columns) - 2), sep="")
    for row in rows:
        print("|", " | ".join(str(row[column]) for column in columns), "|")
    if flags.output:
        with open(flags.output, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
