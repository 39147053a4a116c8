#!/usr/bin/env python3
"""Compares the loss curves of toy pre-trainings whose replicas sum their gradients in float32 and
in bfloat16.

In: Python's help texts (`pydoc_data.topics`). Out: a line of JSON in --output for each type and
seed; those that the file already contains are not measured again. Two logical CPUs train a model of
2/64 on sequences of 32 tokens; the words of the vocabulary are the most frequent ones. All runs of
a type are in one process.

    python benchmarks/all_reduce_dtype.py --output=benchmarks/results/all_reduce_dtype.jsonl
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile
from pydoc_data.topics import topics

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

STEPS, LOGGED_EVERY, WORDS, LENGTH, PREDICTIONS = 300, 20, 1000, 32, 5
CONFIG = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 256,
    "max_position_embeddings": LENGTH,
}
DTYPES = ("float32", "bfloat16")


def prepare(folder: pathlib.Path):
    """Writes vocab.txt, config.json and the records."""
    text = "\n\n".join("\n".join(each.split(". ")) for each in topics.values())
    (folder / "text.txt").write_text(text, encoding="utf-8")
    words = collections.Counter(re.findall(r"[a-z]+|[^\sa-z]", text.lower())).most_common(WORDS)
    letters = [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *(word for word, _ in words),
        *letters,
    ]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    (folder / "config.json").write_text(
        json.dumps(CONFIG | {"vocab_size": len(vocabulary)}), encoding="utf-8"
    )
    command = [
        sys.executable,
        ROOT / "create_pretraining_data.py",
        f"--input_file={folder / 'text.txt'}",
        "--dupe_factor=2",
        f"--vocab_file={folder / 'vocab.txt'}",
        f"--max_seq_length={LENGTH}",
        f"--output_file={folder / 'records'}",
        f"--max_predictions_per_seq={PREDICTIONS}",
    ]
    subprocess.run(command, check=True)


def pretrain(folder: pathlib.Path, dtype: str, seed: int) -> dict:
    """Pre-trains, and returns a row with the mean losses between the progress lines."""
    from official_bert.fine_tuning import pretrain
    from official_bert.options.training import PretrainingOptions
    from official_bert.training import run_log

    output = str(folder / f"{dtype}_{seed}")
    options = PretrainingOptions(
        input_file=[str(folder / "records")],
        output_dir=output,
        bert_config_file=str(folder / "config.json"),
        do_train=True,
        train_batch_size=16,
        max_seq_length=LENGTH,
        max_predictions_per_seq=PREDICTIONS,
        num_train_steps=STEPS,
        num_warmup_steps=30,
        learning_rate=1e-3,
        random_seed=seed,
        log_every_steps=LOGGED_EVERY,
        distribution_strategy="mirrored",
        num_devices=2,
        all_reduce_dtype=dtype,
    )
    pretrain.pretrain(options)
    rows = run_log.read(output, run_log.TRAIN)
    losses = {row["step"]: round(row["loss"], 5) for row in rows}
    return {
        "dtype": dtype,
        "seed": seed,
        "replicas": 2,
        "steps": [*losses],
        "losses": [*losses.values()],
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=DTYPES)
    # Of a process for a type.
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if not flags.folder:
        with tempfile.TemporaryDirectory() as folder:
            prepare(pathlib.Path(folder))
            for dtype in flags.dtypes:  # two strategies in one process would conflict
                command = [
                    sys.executable,
                    __file__,
                    f"--output={flags.output}",
                    f"--folder={folder}",
                ]
                subprocess.run(
                    [*command, "--dtypes", dtype, "--seeds", *map(str, flags.seeds)], check=True
                )
        return
    lines = flags.output.read_text(encoding="utf-8").splitlines() if flags.output.exists() else []
    finished = {(row["dtype"], row["seed"]) for row in map(json.loads, lines)}
    for seed in flags.seeds:
        if (flags.dtypes[0], seed) not in finished:
            row = pretrain(flags.folder, flags.dtypes[0], seed)
            with flags.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
