#!/usr/bin/env python3
"""Pre-trains the same small model with each number format, optimizer and number of replicas, and draws the losses.

In: a text with one sentence a line and an empty line between documents. Out: a table, a picture, and a line of JSON in
--output for each finished run. Runs that this file already contains are not repeated; --draw makes none at all.

Each run is run_pretraining.py as a process of its own: 2 layers of hidden size 128, a vocabulary of 4,000 pieces of the
text, 400 updates of 32 sequences of 128 tokens, the same seed and no dropout, so that the runs differ in nothing but
the variant. Two replicas are two logical CPUs that share each batch.

    python benchmarks/pretraining_variants.py --input_file=corpus.txt --work_dir=work --picture=variants.png
"""

import argparse
import itertools
import json
import pathlib
import shutil
import subprocess
import sys
import time
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from official_bert.io.pictures import panels
from official_bert.training.run_log import read_train_log

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results/pretraining_variants.jsonl"
NUM_STEPS, NUM_WARMUP_STEPS, LOG_EVERY_STEPS = 400, 40, 10
VOCAB_SIZE = 4_000
# LAMB's rate is the share of a matrix's norm that an update changes; AdamW's is the change of each of its numbers.
RATES = {"adamw": 5e-4, "lamb": 1e-2}
STYLES = {  # by number format and number of replicas
    ("float32", 1): ("-", "tab:blue"),
    ("float32", 2): ("--", "black"),
    ("bfloat16", 1): ("-", "tab:orange"),
    ("bfloat16", 2): ("--", "tab:red"),
}
CONFIG = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 512,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 128,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
}


class Variant(NamedTuple):
    dtype: str
    optimizer: str
    replicas: int

    @property
    def label(self) -> str:
        return f"{self.dtype}, {self.optimizer}, {self.replicas} replica{'s' * (self.replicas > 1)}"

    @property
    def flags(self) -> dict:
        """The flags in which the variants differ."""
        flags = {"optimizer_type": self.optimizer, "learning_rate": RATES[self.optimizer]}
        if self.dtype != "float32":
            flags["dtype"] = self.dtype
        if self.replicas > 1:
            flags |= {"distribution_strategy": "mirrored", "num_devices": self.replicas}
        return flags


def script(name: str, **flags) -> list[str]:
    return [sys.executable, str(ROOT / f"{name}.py"), *(f"--{flag}={flags[flag]}" for flag in flags)]


def prepare(text: pathlib.Path, work_dir: pathlib.Path):
    """Makes the vocabulary, the records and the configuration, if they are not there."""
    work_dir.mkdir(parents=True, exist_ok=True)
    vocab, records, config = (work_dir / name for name in ("vocab.txt", "train.tfrecord", "bert_config.json"))
    if not vocab.exists():
        subprocess.run(
            script("build_vocab", input_file=text, output_file=vocab, vocab_size=VOCAB_SIZE), check=True
        )
    config.write_text(json.dumps(CONFIG | {"vocab_size": len(vocab.read_text().splitlines())}))
    if not records.exists():
        flags = {"input_file": text, "output_file": records, "vocab_file": vocab, "dupe_factor": 5}
        flags |= {"max_seq_length": 128, "max_predictions_per_seq": 20, "random_seed": 1}
        subprocess.run(script("create_pretraining_data", **flags), check=True)


def one_run(variant: Variant, work_dir: pathlib.Path) -> dict:
    """Pre-trains a variant and returns its row."""
    output_dir = work_dir / "output"
    shutil.rmtree(output_dir, ignore_errors=True)  # of a run that was killed
    flags = {"input_file": work_dir / "train.tfrecord", "bert_config_file": work_dir / "bert_config.json"}
    flags |= {"output_dir": output_dir, "do_train": True, "train_batch_size": 32, "random_seed": 1}
    flags |= {"num_train_steps": NUM_STEPS, "num_warmup_steps": NUM_WARMUP_STEPS}
    flags |= {"log_every_steps": LOG_EVERY_STEPS} | variant.flags
    start = time.perf_counter()
    ran = subprocess.run(
        script("run_pretraining", **flags),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    secs = time.perf_counter() - start
    if ran.returncode:
        sys.exit(ran.stdout[-2000:])
    logged = read_train_log(str(output_dir / "train_log.jsonl"))
    shutil.rmtree(output_dir)
    row = variant._asdict() | {"rate": RATES[variant.optimizer], "secs": round(secs, 1)}
    return row | {
        "steps": [line["step"] for line in logged],
        "losses": [round(line["loss"], 6) for line in logged],
    }


def print_table(rows: dict[Variant, dict]):
    """Prints the last losses, and the greatest differences between the curves of two replicas and of one."""
    print("\n| variant | rate | loss at the end | greatest difference from 1 replica |\n|---|--:|--:|--:|")
    for variant, row in rows.items():
        one, difference = rows.get(variant._replace(replicas=1)), ""
        if one and variant.replicas > 1:
            pairs = zip(row["losses"], one["losses"], strict=True)
            difference = f"{max(abs(mine - its) for mine, its in pairs):.1e}"
        print(f"| {variant.label} | {row['rate']:g} | {row['losses'][-1]:.4f} | {difference} |")
    print(flush=True)


def draw(path: str, rows: dict[Variant, dict]):
    """Draws a panel for each optimizer; the curve of two replicas is dashed above that of one."""
    with panels(path, "Pre-training loss of the same small model", len(RATES)) as axes:
        for axis, optimizer in zip(axes, RATES, strict=True):
            for variant in sorted(rows, key=lambda variant: variant.replicas):
                if variant.optimizer == optimizer:
                    style, color = STYLES[variant.dtype, variant.replicas]
                    row = rows[variant]
                    axis.plot(
                        row["steps"], row["losses"], style, color=color, label=variant.label, linewidth=1.3
                    )
            axis.set_ylabel(f"loss, {optimizer} at {RATES[optimizer]:g}")
            axis.grid(alpha=0.3)
            axis.legend()
        axes[-1].set_xlabel("update")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input_file", type=pathlib.Path, help="the text")
    parser.add_argument("--work_dir", type=pathlib.Path, help="folder for vocabulary, records and outputs")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS, help="JSON lines file of the runs")
    parser.add_argument(
        "--dtypes", nargs="+", default=["float32"], help="values of --dtype: float32, bfloat16"
    )
    parser.add_argument("--picture", help="PNG file of the curves")
    parser.add_argument("--draw", action="store_true", help="only print the table and draw the picture")
    flags = parser.parse_args()

    lines = flags.output.read_text(encoding="utf-8").splitlines() if flags.output.exists() else []
    found = [json.loads(line) for line in lines]
    rows = {Variant(row["dtype"], row["optimizer"], row["replicas"]): row for row in found}
    if not flags.draw:
        if not (flags.input_file and flags.work_dir):
            parser.error("--input_file and --work_dir are needed for runs")
        prepare(flags.input_file, flags.work_dir)
        for variant in itertools.starmap(Variant, itertools.product(flags.dtypes, RATES, (1, 2))):
            if variant not in rows:
                rows[variant] = one_run(variant, flags.work_dir)
                with flags.output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[variant]) + "\n")
                print(variant.label, rows[variant]["losses"][-1], flush=True)
    rows = {
        variant: rows[variant]
        for variant in sorted(rows, key=lambda each: (each.optimizer, each.dtype, each.replicas))
    }
    print_table(rows)
    if flags.picture:
        draw(flags.picture, rows)


if __name__ == "__main__":
    main()
