#!/usr/bin/env python3
"""Compares sentence embeddings with sentence-transformers on PyTorch: losses, quality, seconds; and
global negatives.

In: a folder of real data and a folder of sentence-transformers. Out: tables, and a line of JSON in
--output for each finished run. Runs that this file already contains are not repeated; each is a
process of its own.

    python benchmarks/embeddings.py losses --data=data --model=minilm --work_dir=work --output=embeddings.jsonl

`losses`: 50 updates of each loss from the same weights with the same tokens in the same order,
without dropout; the classes of sentence-transformers are trained with the original's optimizer of
finetuning_losses.py.
`quality`: one epoch on STS-B with cosent, on the entailment pairs of SICK with
multiple_negatives_ranking, and, from --pretrained, on sentences of Wikipedia with simcse. Our side
is the script that users run; theirs is the usual loop: AdamW with bias correction, a linear
schedule with warm-up, clipping at norm 1. Ours is run with the original's optimizer, which does not
correct the bias and so makes larger first updates, and with theirs. Our metrics score both.
`negatives`: our script on questions of SQuAD and the sentences that answer them, with batches of 32
and, in micro-batches of 32, larger ones; the same examples each time. TREC answer selection
measures the vectors.
`speed`: seconds of an update and, in float32, of the encoding of 10,000 sentences, of both sides in
turns. `--dtypes float32 bfloat16` also measures updates whose products are in bfloat16.
"""

import argparse
import csv
import dataclasses
import itertools
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np
from embeddings_data import (
    answered_questions,
    loss_examples,
    sts_benchmark,
    test_pairs,
    training_pairs,
    write_lines,
)
from embeddings_steps import (
    BATCH_SIZE,
    LEARNING_RATE,
    LOSSES,
    MAX_LENGTH,
    THEIR_OPTIMIZER,
    WARMUP_PROPORTION,
    adamw,
    encoded_batches,
    our_losses,
    their_loss,
    their_losses,
    their_model,
)
from result_rows import measure_missing

SIDES = ("ours", "theirs")
WITH_THEIR_OPTIMIZER = "ours with their optimizer"
NUM_STEPS, LOSS_BATCH_SIZE, TARGET = 50, 16, 1e-5
TRAININGS = {
    "STS-B": ("cosent", "CoSENTLoss"),
    "SICK": ("multiple_negatives_ranking", "MultipleNegativesRankingLoss"),
    "Wikipedia": ("simcse", "MultipleNegativesRankingLoss"),  # of --pretrained
}
SETS = ("STS-B", "STS12", "STS13", "STS15", "SICK")
NEGATIVES_BATCHES, NEGATIVES_LENGTH = (32, 256, 2048), 64
ROUNDS, TIMED_UPDATES, NUM_ENCODED = 3, 20, 10_000


def losses_run(flags, name: str) -> dict:
    task, batches = encoded_batches(
        flags, name, loss_examples(flags.data, name), NUM_STEPS, LOSS_BATCH_SIZE
    )
    ours, _ = our_losses(flags, task, batches, dropout=False)
    theirs, _ = their_losses(flags, name, batches, dropout=False)
    return {
        "difference": float(np.abs(np.subtract(ours, theirs)).max()),
        "ours": ours,
        "theirs": theirs,
    }


def our_options(flags, output_dir: str, train: list[dict], dev: list[dict], **more):
    """Returns the options of official-bert run_embeddings for a training and an evaluation."""
    from official_bert.extensions.embeddings.options import EmbeddingOptions

    folder = pathlib.Path(output_dir)
    return EmbeddingOptions(
        train_file=str(write_lines(folder / "train.jsonl", train)),
        dev_file=str(write_lines(folder / "dev.jsonl", dev)),
        vocab_file=str(flags.model / "vocab.txt"),
        bert_config_file=str(flags.model / "config.json"),
        init_checkpoint=str(flags.model),
        output_dir=str(folder / "output"),
        learning_rate=LEARNING_RATE,
        warmup_proportion=WARMUP_PROPORTION,
        num_train_epochs=1.0,
        do_train=True,
        do_eval=True,
        eval_batch_size=BATCH_SIZE,
        save_checkpoints_steps=1_000_000,
        **more,
    )


def quality_run(flags, name: str, side: str, seed: int) -> dict:
    """Trains a model of a side, and returns the Spearman correlation times 100 on all sets."""
    pairs = training_pairs(flags.data, name)[: flags.num_pairs]
    if name == "Wikipedia":
        flags.model = flags.pretrained
    with tempfile.TemporaryDirectory(dir=flags.work_dir) as folder:
        if side != "theirs":
            from finetuning import our_run

            from official_bert import SentenceEncoder

            more = {
                "train_batch_size": BATCH_SIZE,
                "max_seq_length": MAX_LENGTH,
                "random_seed": seed,
            }
            more |= THEIR_OPTIMIZER if side == WITH_THEIR_OPTIMIZER else {}
            dev = test_pairs(flags.data, "SICK")
            train = [{"text": one["sentence1"]} for one in pairs] if name == "Wikipedia" else pairs
            row = our_run(
                None, our_options(flags, folder, train, dev, loss=TRAININGS[name][0], **more)
            )
            encode = SentenceEncoder(f"{folder}/output").encode
        else:
            model = their_model(flags.model)
            row = their_training(model, pairs, TRAININGS[name][1], seed)
            encode = lambda texts: model.encode(texts, batch_size=BATCH_SIZE)  # noqa: E731
        spearman = {
            one: 100 * compute_spearman(encode, test_pairs(flags.data, one)) for one in SETS
        }
    return {"updates": row["updates"], "train_secs": row["train_secs"], "spearman": spearman}


def compute_spearman(encode, pairs: list[dict]) -> float:
    from official_bert.metrics import embeddings

    texts = list(dict.fromkeys(pair[name] for name in ("sentence1", "sentence2") for pair in pairs))
    vectors = dict(zip(texts, encode(texts), strict=True))
    first, second = (
        np.array([vectors[pair[name]] for pair in pairs]) for name in ("sentence1", "sentence2")
    )
    return float(
        embeddings.sts(first, second, np.array([pair["label"] for pair in pairs]))["spearman"]
    )


def their_training(model, pairs: list[dict], loss: str, seed: int) -> dict:
    import torch
    from sentence_transformers.util import batch_to_device

    torch.manual_seed(seed)
    start = time.perf_counter()
    num_steps = -(-len(pairs) // BATCH_SIZE)
    compute_loss, update = their_loss(loss, model), adamw(model, num_steps)
    order = np.random.default_rng(seed).permutation(len(pairs))
    model.train()
    for step in range(num_steps):
        batch = [pairs[row] for row in order[step * BATCH_SIZE : (step + 1) * BATCH_SIZE]]
        columns = [
            batch_to_device(model.preprocess([pair[name] for pair in batch]), model.device)
            for name in ("sentence1", "sentence2")
        ]
        loss_value = compute_loss(
            columns, torch.tensor([pair["label"] for pair in batch]).to(model.device)
        )
        loss_value.backward()
        update()
        if step % 20 == 0:
            print(
                f"step {step}/{num_steps} loss {loss_value.item():.4f}", file=sys.stderr, flush=True
            )
    model.eval()
    return {"updates": num_steps, "train_secs": time.perf_counter() - start}


def negatives_run(flags, batch_size: int) -> dict:
    """Trains on all pairs once; returns the seconds of an update, the peak of memory, and
    nDCG@10.
    """
    from finetuning import our_run

    with (flags.data / "ranking" / "wang_dev.csv").open(encoding="utf-8", newline="") as file:
        dev = [
            {"query": row["qtext"], "answer": row["atext"], "label": row["label"]}
            for row in csv.DictReader(file)
        ]
    with tempfile.TemporaryDirectory(dir=flags.work_dir) as folder:
        options = our_options(
            flags,
            folder,
            answered_questions(flags.data),
            dev,
            loss="multiple_negatives_ranking",
            eval_task="retrieval",
            train_batch_size=batch_size,
            num_accumulation_steps=batch_size // BATCH_SIZE,
            max_seq_length=NEGATIVES_LENGTH,
        )
        untrained = our_run_without_training(options)
        row = our_run(None, options)
    from official_bert.training.memory import peak_memory

    peak = peak_memory()
    return {
        "updates": row["updates"],
        "update_secs": row["train_secs"] / row["updates"],
        "peak_bytes": 1e6 * peak.get("gpu_memory_mb", peak["memory_mb"]),
        "ndcg_at_10": row["results"]["eval_ndcg_at_10"],
        "untrained_ndcg_at_10": untrained,
    }


def our_run_without_training(options) -> float:
    from official_bert.fine_tuning.run import fine_tune

    return fine_tune(
        dataclasses.replace(options, do_train=False, output_dir=f"{options.output_dir}_untrained")
    ).value


def speed_run(flags, side: str, dtype: str) -> dict:
    """Returns the median seconds of an update, and in float32 those of the encoding of sentences of
    mixed length.
    """
    task, batches = encoded_batches(
        flags, "cosent", sts_benchmark(flags.data, "train"), TIMED_UPDATES + 5, BATCH_SIZE
    )
    if side == "ours":
        from official_bert import SentenceEncoder

        _, secs = our_losses(flags, task, batches, dropout=True, dtype=dtype)
        encode = SentenceEncoder(str(flags.model), max_seq_length=MAX_LENGTH).encode
    else:
        _, secs = their_losses(flags, "cosent", batches, dropout=True, dtype=dtype)
        model = their_model(flags.model)
        encode = lambda texts: model.encode(texts, batch_size=BATCH_SIZE)  # noqa: E731
    row = {"update_secs": statistics.median(secs[5:])}
    if dtype != "float32":
        return row
    pairs = [pair for name in SETS for pair in test_pairs(flags.data, name)]
    texts = sorted({pair[name] for pair in pairs for name in ("sentence1", "sentence2")})
    texts = random.Random(0).sample(texts, NUM_ENCODED)
    encode(texts[:200])
    start = time.perf_counter()
    encode(texts)
    return row | {"encode_secs": time.perf_counter() - start}


def list_runs(flags) -> list[dict]:
    """Returns what identifies each run of a mode."""
    if flags.mode == "losses":
        return [{"loss": name} for name in LOSSES]
    if flags.mode == "quality":
        named = itertools.product(flags.trainings, range(3), (*SIDES, WITH_THEIR_OPTIMIZER))
        return [{"task": name, "seed": seed, "side": side} for name, seed, side in named]
    if flags.mode == "negatives":
        return [{"batch_size": size} for size in NEGATIVES_BATCHES]
    named = itertools.product(range(ROUNDS), flags.dtypes, SIDES)
    return [{"round": number, "dtype": dtype, "side": side} for number, dtype, side in named]


def one_run(flags, which: dict) -> dict:
    from finetuning import device_name

    load = os.getloadavg()[0]
    if flags.mode == "losses":
        row = losses_run(flags, which["loss"])
    elif flags.mode == "quality":
        row = quality_run(flags, which["task"], which["side"], which["seed"])
    elif flags.mode == "negatives":
        row = negatives_run(flags, which["batch_size"])
    else:
        row = speed_run(flags, which["side"], which["dtype"])
    where = {"load": load, "num_threads": len(os.sched_getaffinity(0)), "device": device_name()}
    return {"mode": flags.mode} | which | row | where


def print_tables(rows: list[dict]):
    """Prints a table for each mode that has rows."""
    mode_rows = {mode: [row for row in rows if row["mode"] == mode] for mode in MODES}
    if mode_rows["losses"]:
        print(
            "\n| loss | first loss | last loss | greatest difference | within 1e-5 "
            "|\n|---|--:|--:|--:|---|"
        )
    for row in sorted(mode_rows["losses"], key=lambda row: list(LOSSES).index(row["loss"])):
        verdict = "yes" if row["difference"] <= TARGET else "no"
        shown = f"{row['ours'][0]:.3g} | {row['ours'][-1]:.3g} | {row['difference']:.1e}"
        print(f"| {row['loss']} | {shown} | {verdict} |")
    print_quality(mode_rows["quality"])
    if mode_rows["negatives"]:
        print(
            "\n| batch | micro-batches | updates | an update, s | an example, ms | peak memory, GB "
            "| nDCG@10 |"
        )
        print("|--:|--:|--:|--:|--:|--:|--:|")
    for row in mode_rows["negatives"]:
        size = row["batch_size"]
        print(
            f"| {size} | {size // BATCH_SIZE} | {row['updates']} | {row['update_secs']:.2f} | "
            f"{1000 * row['update_secs'] / size:.0f} | {row['peak_bytes'] / 1e9:.2f} | "
            f"{row['ndcg_at_10']:.4f} |"
        )
    print_speed(mode_rows["speed"])
    print(flush=True)


def print_quality(rows: list[dict]):
    """Prints the mean and the deviation of our two sides beside theirs, over the seeds that both
    have.
    """
    if not rows:
        return
    print(
        "\n| trained on | our optimizer | measured on | seeds | ours | sentence-transformers | "
        "difference |",
        end="",
    )
    print(" standard errors |\n|---|---|---|--:|--:|--:|--:|--:|")
    for name, side, measured in itertools.product(TRAININGS, ("ours", WITH_THEIR_OPTIMIZER), SETS):
        ours, theirs = (
            {
                row["seed"]: row["spearman"][measured]
                for row in rows
                if (row["task"], row["side"]) == which
            }
            for which in ((name, side), (name, "theirs"))
        )
        if len(seeds := sorted(ours.keys() & theirs.keys())) < 2:
            continue
        sides = [[one[seed] for seed in seeds] for one in (ours, theirs)]
        difference = statistics.mean(sides[0]) - statistics.mean(sides[1])
        error = sum(statistics.variance(one) / len(seeds) for one in sides) ** 0.5
        shown = " | ".join(
            f"{statistics.mean(one):.2f} ± {statistics.stdev(one):.2f}" for one in sides
        )
        optimizer = "the original's" if side == "ours" else "theirs"
        figures = f"{len(seeds)} | {shown} | {difference:+.2f} | {difference / error:+.1f}"
        print(f"| {name} | {optimizer} | {measured} | {figures} |")


def print_speed(rows: list[dict]):
    if not rows:
        return
    print("\n| what | rounds | ours, s | sentence-transformers, s | lead | load of the machine |")
    print("|---|--:|--:|--:|--:|--:|")
    for what, dtype, key in (
        ("an update", "float32", "update_secs"),
        ("an update in bfloat16", "bfloat16", "update_secs"),
        (f"encoding {NUM_ENCODED:,} sentences", "float32", "encode_secs"),
    ):
        shown = [row for row in rows if row["dtype"] == dtype]
        sides = [[row[key] for row in shown if row["side"] == side] for side in SIDES]
        if not all(sides):
            continue
        ours, theirs = map(statistics.median, sides)
        loads = [row["load"] for row in shown]
        print(
            f"| {what} | {len(sides[0])} | {ours:.3g} | {theirs:.3g} | {theirs / ours:.2f}x | "
            f"{min(loads):.1f} to {max(loads):.1f} |"
        )


MODES = ("losses", "quality", "negatives", "speed")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=MODES)
    parser.add_argument(
        "--data", type=pathlib.Path, required=True, help="folder with sts, sick, squad and ranking"
    )
    parser.add_argument(
        "--model", type=pathlib.Path, required=True, help="folder of sentence-transformers"
    )
    parser.add_argument(
        "--trainings", nargs="+", choices=TRAININGS, default=["STS-B", "SICK"], help="of quality"
    )
    parser.add_argument(
        "--pretrained", type=pathlib.Path, help="of quality on Wikipedia: a plain encoder"
    )
    parser.add_argument(
        "--work_dir", type=pathlib.Path, required=True, help="folder for what is thrown away"
    )
    parser.add_argument(
        "--output", type=pathlib.Path, required=True, help="JSON lines file of the runs"
    )
    parser.add_argument(
        "--dtypes", nargs="+", choices=("float32", "bfloat16"), default=["float32"], help="of speed"
    )
    parser.add_argument(
        "--num_pairs", type=int, help="of quality, to try it: how many pairs are trained on"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if flags.one:
        print(json.dumps(one_run(flags, json.loads(flags.one))), flush=True)
        return
    flags.work_dir.mkdir(parents=True, exist_ok=True)
    rows = measure_missing(__file__, flags.output, list_runs(flags), {"mode": flags.mode})
    print_tables(rows)


if __name__ == "__main__":
    main()
