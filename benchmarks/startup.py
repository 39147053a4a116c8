#!/usr/bin/env python3
"""Measures the processor time before a command does its work: imports, traces, compilations.

In: nothing; the text, the vocabulary and the models are tiny. Out: a table, and with --output a line
    of JSON for each checkout and command.

Each command is a process of its own, and what counts are its user and system seconds, the smallest
of the rounds: other work on the machine hardly changes them. The checkouts take turns. The first
round fills the caches of Python's bytecode and does not count.

    python benchmarks/startup.py --checkouts=../before,. --output=benchmarks/results/startup.jsonl
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from benchmarks.training_step import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
LENGTH = 32
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SENTENCES = (
    "the lamp of the old harbour burns all night",
    "a boat came in before the storm",
    "nobody has seen the keeper for a week",
    "she wrote the date into the book and went home",
)


def write_inputs(folder: pathlib.Path) -> dict[str, list[str]]:
    """Writes the inputs, and returns the words of each command behind the name of Python."""
    words = sorted({word for sentence in SENTENCES for word in sentence.split()} - {*LETTERS})
    pieces = [*SPECIAL_PIECES, *LETTERS, *(f"##{letter}" for letter in LETTERS), *words]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    config = {
        "vocab_size": len(pieces),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
    }
    (folder / "bert_config.json").write_text(json.dumps(config))
    document = "\n".join(SENTENCES) + "\n\n"
    (folder / "text.txt").write_text(document * 20)
    rows = [f"{sentence}\t{'boat' in sentence}" for sentence in SENTENCES * 8]
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text("\n".join(["text\tlabel", *rows]) + "\n")

    model = [
        f"--vocab_file={folder}/vocab.txt",
        f"--bert_config_file={folder}/bert_config.json",
        "--do_lower_case",
        f"--max_seq_length={LENGTH}",
        "--train_batch_size=8",
        "--do_train",
    ]
    pretraining = [
        "run_pretraining.py",
        "--num_train_steps=10",
        "--num_warmup_steps=2",
        "--max_predictions_per_seq=5",
        *model,
    ]
    return {
        "records": [
            "create_pretraining_data.py",
            f"--input_file={folder}/text.txt",
            f"--output_file={folder}/records",
            f"--vocab_file={folder}/vocab.txt",
            f"--max_seq_length={LENGTH}",
            "--max_predictions_per_seq=5",
        ],
        "import official_bert": ["-c", "import official_bert"],
        "--help": ["run_pretraining.py", "--help"],
        "wrong path": [*pretraining, f"--input_file={folder}/missing", f"--output_dir={folder}/no"],
        "pre-training": [
            *pretraining,
            f"--input_file={folder}/records",
            f"--output_dir={folder}/pretrained",
        ],
        "fine-tuning": [
            "run_classifier.py",
            "--task_name=text",
            f"--data_dir={folder}",
            f"--output_dir={folder}/classifier",
            "--num_train_epochs=2",
            "--do_eval",
            *model,
        ],
        "predict": ["-m", "official_bert", "predict", f"--model={folder}/classifier"],
    }


def processor_seconds(checkout: pathlib.Path, words: Sequence[str], expects: int) -> float:
    """Runs a command of a checkout, and returns the processor seconds of its process."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as text:
        text.write(SENTENCES[0].encode() + b"\n")
        text.seek(0)
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=checkout,
            env=environment,
            stdin=text,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != expects:
            log.seek(0)
            sys.exit(f"{' '.join(words)}: ended with {process.returncode}\n{log.read().decode()}")
    return usage.ru_utime + usage.ru_stime


def clear(folder: pathlib.Path):
    """Deletes the models of the turn before, from which a training would resume."""
    for name in ("pretrained", "classifier"):
        subprocess.run(["rm", "-rf", str(folder / name)], check=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkouts", default=str(ROOT), help="folders of revisions, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", help="the folder of another trained classifier for predict")
    parser.add_argument("--note", help="a remark for the rows, such as what else the machine did")
    parser.add_argument("--output", help="JSON lines file that the rows are added to")
    flags = parser.parse_args()
    checkouts = [pathlib.Path(name).resolve() for name in flags.checkouts.split(",")]
    seconds: dict[tuple, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        commands = write_inputs(folder)
        processor_seconds(checkouts[0], commands.pop("records"), expects=0)
        if flags.model:
            commands["predict"][-1] = f"--model={pathlib.Path(flags.model).resolve()}"
        for round_ in range(-1, flags.rounds):
            for checkout in checkouts:
                clear(folder)
                for command, words in commands.items():
                    expects = 1 if command == "wrong path" else 0
                    secs = processor_seconds(checkout, words, expects)
                    if round_ >= 0:
                        seconds.setdefault((checkout, command), []).append(secs)
    print("| command |", " | ".join(checkout.name for checkout in checkouts), "|")
    print("|---|", "--:|" * len(checkouts), sep="")
    for command in commands:
        smallest = [min(seconds[checkout, command]) for checkout in checkouts]
        print(f"| {command} |", " | ".join(f"{secs:.2f}" for secs in smallest), "|")
    rows = [
        {
            "machine": machine(),
            "note": flags.note,
            "revision": revision(checkout),
            "command": command,
            "model": flags.model and pathlib.Path(flags.model).name,
            "processor_secs": round(min(rounds), 3),
            "processor_secs_of_rounds": [round(secs, 3) for secs in rounds],
        }
        for (checkout, command), rounds in seconds.items()
    ]
    if flags.output:
        with open(flags.output, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def revision(checkout: pathlib.Path) -> str:
    """Returns the commit of a checkout."""
    command = ["git", "-C", str(checkout), "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
