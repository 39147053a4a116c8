#!/usr/bin/env python3
"""Pre-trains the same small model on the records of each generator and compares what it has learnt.

In: a text to train on and one to evaluate on, with one sentence a line and an empty line between documents. Out: a
table, and a line of JSON in --output for each finished run. Runs that this file already contains are not repeated.

The ways to make data are the generator `exact`, the generator `sharded`, and `sharded` without masks, which
run_pretraining.py --dynamic_masking then draws. Each run is a process of its own: 2 layers of hidden size 128, a
vocabulary of 4,000 pieces of the text, 1,500 updates of 32 sequences of 64 tokens. A seed is that of the records and of
the training. All models are evaluated on the same records, which `exact` made of the other text.

    python benchmarks/pretraining_data.py --input_file=train.txt --eval_file=held_out.txt --work_dir=work
"""

import argparse
import json
import math
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

from pretraining_variants import CONFIG, VOCAB_SIZE, script

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results/pretraining_data.jsonl"
NUM_STEPS, NUM_WARMUP_STEPS = 1_500, 150
RATE = 1e-3
LENGTHS = {"max_seq_length": 64, "max_predictions_per_seq": 10}
WAYS = {  # the flags of create_pretraining_data.py, those of run_pretraining.py
    "exact": ({"generator": "exact"}, {}),
    "sharded": ({"generator": "sharded", "num_workers": 2}, {}),
    "dynamic": ({"generator": "sharded", "num_workers": 2, "mask_tokens": False}, {"dynamic_masking": True}),
}
METRICS = {"masked_lm_accuracy": "masked LM", "next_sentence_accuracy": "next sentence"}


def records_of(text: pathlib.Path, folder: pathlib.Path, vocab: pathlib.Path, seed: int, flags: dict) -> str:
    """Makes records in an empty folder and returns their pattern."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    flags = (
        {"dupe_factor": 5}
        | flags
        | {"input_file": text, "output_file": folder / "records", "vocab_file": vocab}
    )
    subprocess.run(script("create_pretraining_data", **flags, **LENGTHS, random_seed=seed), check=True)
    return f"{folder}/records*"


def one_run(way: str, seed: int, work_dir: pathlib.Path, text: pathlib.Path) -> dict:
    """Makes the records, trains, evaluates and returns the row."""
    data_flags, training_flags = WAYS[way]
    vocab, output_dir = work_dir / "vocab.txt", work_dir / "output"
    shutil.rmtree(output_dir, ignore_errors=True)  # of a run that was killed
    flags = {"input_file": records_of(text, work_dir / "train", vocab, seed, data_flags), "do_train": True}
    flags |= {"num_train_steps": NUM_STEPS, "num_warmup_steps": NUM_WARMUP_STEPS, "learning_rate": RATE}
    flags |= {"train_batch_size": 32, "random_seed": seed} | training_flags
    evaluation = {"input_file": f"{work_dir}/eval/records*", "do_eval": True, "max_eval_steps": 0}
    start = time.perf_counter()
    for each in (flags, evaluation):
        common = {"bert_config_file": work_dir / "bert_config.json", "vocab_file": vocab}
        command = script("run_pretraining", output_dir=output_dir, **common, **LENGTHS, **each)
        ran = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if ran.returncode:
            sys.exit(ran.stdout[-2000:])
    secs = time.perf_counter() - start
    lines = (output_dir / "eval_results.txt").read_text(encoding="utf-8").splitlines()
    results = {name: float(value) for name, value in (line.split(" = ") for line in lines)}
    shutil.rmtree(output_dir)
    return {"way": way, "seed": seed, "secs": round(secs, 1)} | {name: results[name] for name in METRICS}


def print_table(rows: list[dict]):
    """Prints means, and differences from `exact` with their standard errors."""
    print(
        "\n| records | runs | metric | mean | standard deviation | difference from `exact` | standard errors |"
    )
    print("|---|--:|---|--:|--:|--:|--:|")
    for name, title in METRICS.items():
        values = {way: [row[name] for row in rows if row["way"] == way] for way in WAYS}
        for way, found in values.items():
            if len(found) > 1:
                line = f"| {way} | {len(found)} | {title} | {statistics.mean(found):.2%} | "
                line += f"{statistics.stdev(found):.2%} |"
                if way != "exact" and len(values["exact"]) > 1:
                    pair = found, values["exact"]
                    difference = statistics.mean(found) - statistics.mean(values["exact"])
                    error = math.sqrt(sum(statistics.variance(each) / len(each) for each in pair))
                    line += f" {difference:+.2%} | {difference / error:+.1f} |"
                else:
                    line += " | |"
                print(line)
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("input_file", "eval_file", "work_dir"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS, help="JSON lines file of the runs")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    flags = parser.parse_args()

    lines = flags.output.read_text(encoding="utf-8").splitlines() if flags.output.exists() else []
    rows = [json.loads(line) for line in lines]
    vocab = flags.work_dir / "vocab.txt"
    if not vocab.exists():
        flags.work_dir.mkdir(parents=True, exist_ok=True)
        command = script("build_vocab", input_file=flags.input_file, output_file=vocab, vocab_size=VOCAB_SIZE)
        subprocess.run(command, check=True)
    config = CONFIG | {"vocab_size": len(vocab.read_text(encoding="utf-8").splitlines())}
    (flags.work_dir / "bert_config.json").write_text(json.dumps(config))
    if not (flags.work_dir / "eval").exists():
        records_of(flags.eval_file, flags.work_dir / "eval", vocab, 0, WAYS["exact"][0] | {"dupe_factor": 1})
    done = {(row["way"], row["seed"]) for row in rows}
    for seed in flags.seeds:
        for way in WAYS:
            if (way, seed) not in done:
                rows.append(one_run(way, seed, flags.work_dir, flags.input_file))
                with flags.output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
                print(rows[-1], flush=True)
    print_table(rows)


if __name__ == "__main__":
    main()
