#!/usr/bin/env python3
"""Compares the loss curves of toy pre-trainings whose replicas sum their gradients in float32 and in bfloat16.

In: Python's help texts (`pydoc_data.topics`). Out: a line of JSON in --output for each type and seed; those that the
file already contains are not measured again. Two logical CPUs train a model of 2/128 on sequences of 64 tokens.

    python benchmarks/all_reduce_dtype.py --output=benchmarks/results/all_reduce_dtype.jsonl
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from pydoc_data.topics import topics

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

STEPS, LOGGED_EVERY, WORDS = 300, 20, 2000
CONFIG = {
    "vocab_size": WORDS, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 512, "max_position_embeddings": 64,
}  # fmt: skip
LENGTHS = ("--max_seq_length=64", "--max_predictions_per_seq=10")


def run(script: str, *flags: str):
    subprocess.run([sys.executable, ROOT / script, *flags], check=True)


def prepare(folder: pathlib.Path):
    """Writes vocab.txt, config.json and the records."""
    text = folder / "text.txt"
    text.write_text("\n\n".join("\n".join(each.split(". ")) for each in topics.values()), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    vocab = folder / "vocab.txt"
    run("build_vocab.py", f"--input_file={text}", f"--output_file={vocab}", f"--vocab_size={WORDS}")
    run(
        "create_pretraining_data.py", f"--input_file={text}", f"--vocab_file={vocab}", *LENGTHS, "--dupe_factor=2",
        f"--output_file={folder / 'records.tfrecord'}",
    )  # fmt: skip


def losses(folder: pathlib.Path, dtype: str, seed: int) -> dict[str, list]:
    """Pre-trains, and returns the mean losses of the progress lines with their steps."""
    from official_bert.training import run_log

    output = folder / f"{dtype}_{seed}"
    run(
        "run_pretraining.py", f"--input_file={folder / 'records.tfrecord'}", f"--output_dir={output}", *LENGTHS,
        f"--bert_config_file={folder / 'config.json'}", "--do_train", "--train_batch_size=16",
        f"--num_train_steps={STEPS}", "--num_warmup_steps=30", "--learning_rate=5e-4", f"--random_seed={seed}",
        f"--log_every_steps={LOGGED_EVERY}", "--distribution_strategy=mirrored", "--num_devices=2",
        f"--all_reduce_dtype={dtype}",
    )  # fmt: skip
    rows = run_log.read(str(output), run_log.TRAIN)
    return {"steps": [row["step"] for row in rows], "losses": [round(row["loss"], 5) for row in rows]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    flags = parser.parse_args()
    lines = flags.output.read_text(encoding="utf-8").splitlines() if flags.output.exists() else []
    finished = {(row["dtype"], row["seed"]) for row in map(json.loads, lines)}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(folder)
        for seed in flags.seeds:
            for dtype in ("float32", "bfloat16"):
                if (dtype, seed) not in finished:
                    row = {"dtype": dtype, "seed": seed, "replicas": 2} | losses(folder, dtype, seed)
                    with flags.output.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
