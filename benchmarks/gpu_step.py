#!/usr/bin/env python3
"""Compares the time of a pre-training step on a GPU with that of Hugging Face's model on PyTorch.

In: batches of random ids. Out: a table, and a line of JSON in --output for each finished row. Rows
that this file already contains are not measured again.

A step consists of forward pass, backward pass, clipping and the optimizer, with dropout 0.1, a
vocabulary of 30,522 and 0.15 predictions a token, all of them at full length. Both sides multiply
float32 in TF32. The peer computes with scaled_dot_product_attention, the fused AdamW and, in
bfloat16, autocast; "compiled" is torch.compile. It computes the product with the vocabulary for all
positions, ours for those that are predicted. Each row is a process of its own; the seconds are
medians of single steps, with the loss read after each.

    python benchmarks/gpu_step.py --output=gpu_step.jsonl
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np
import training_step

SHAPES = {(128, 256): 20, (512, 64): 77}  # length and batch: predictions of a sequence
SIZES = ("base", "large")
OURS = {
    f"{dtype}{' XLA' if jit else ''}": training_step.Variant(dtype, jit)
    for dtype, jit in itertools.product(("float32", "bfloat16", "float16"), (False, True))
}
PEERS = ("Hugging Face float32", "Hugging Face bfloat16", "Hugging Face bfloat16 compiled")


def peer_step(config, batch_size: int, variant: str):
    """Returns a function that makes one step of Hugging Face's model."""
    import torch
    import transformers

    torch.backends.cuda.matmul.allow_tf32 = True
    sizes = config.to_dict()
    size_names = (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
    )
    model = transformers.BertForPreTraining(
        transformers.BertConfig(**{name: sizes[name] for name in size_names})
    ).cuda()
    model.train()
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    batch = {
        key: torch.from_numpy(array).long()
        for key, array in training_step.random_batch(batch_size).items()
    }
    labels = torch.full(batch["input_ids"].shape, -100)
    labels.scatter_(1, batch["masked_lm_positions"], batch["masked_lm_ids"])
    inputs = {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["input_mask"],
        "token_type_ids": batch["segment_ids"],
        "labels": labels,
        "next_sentence_label": batch["next_sentence_labels"][:, 0],
    }
    inputs = {name: value.cuda() for name, value in inputs.items()}
    forward = torch.compile(model) if variant.endswith("compiled") else model

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled="bfloat16" in variant):
            loss = forward(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad()
        return loss.item()

    return step, lambda: torch.cuda.max_memory_allocated()


def our_step(config, batch_size: int, variant: str):
    """Returns a function that makes one of our steps."""
    import tensorflow as tf

    from official_bert.training.memory import peak_memory

    step = training_step.our_step(config, batch_size, OURS[variant])
    batch = {
        name: tf.constant(array[None])
        for name, array in training_step.random_batch(batch_size).items()
    }
    return lambda: float(step(batch)["loss"]), lambda: peak_memory()["gpu_memory_mb"] * 1e6


def measure(size: str, length: int, batch_size: int, variant: str, rounds: int) -> dict:
    """Measures one row."""
    from official_bert import BertConfig

    training_step.LENGTH, training_step.PREDICTIONS = length, SHAPES[length, batch_size]
    config = BertConfig.from_size(size, training_step.VOCAB)
    make_step = peer_step if variant in PEERS else our_step
    step, peak = make_step(config, batch_size, variant)
    losses, secs = [], []
    for _ in range(rounds + 5):
        start = time.perf_counter()
        losses.append(step())
        secs.append(time.perf_counter() - start)
    if not np.isfinite(losses).all():
        raise ValueError(f"{variant}: a loss is not finite: {losses}")
    return {
        "device": device_name(),
        "step_secs": statistics.median(secs[5:]),
        "first_secs": secs[0],
        "losses": [losses[0], losses[-1]],
        "peak_bytes": peak(),
    }


def device_name() -> str:
    ran = subprocess.run(
        ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True
    )
    return ran.stdout.splitlines()[0]


def print_table(rows: list[dict]):
    print(
        "\n| model | length | batch | step | ms | tokens a second | peak memory, GB | beside the "
        "best peer |"
    )
    print("|---|--:|--:|---|--:|--:|--:|--:|")
    for row in rows:
        shape = row["size"], row["length"], row["batch_size"]
        peers = [
            one["step_secs"] for one in rows if _shape(one) == shape and one["variant"] in PEERS
        ]
        lead = f"{min(peers) / row['step_secs']:.2f}x" if peers else ""
        rate = row["length"] * row["batch_size"] / row["step_secs"]
        shown = " | ".join(map(str, (*shape, row["variant"])))
        figures = (
            f"{1000 * row['step_secs']:.1f} | {rate:,.0f} | {row['peak_bytes'] / 1e9:.1f} | {lead}"
        )
        print(f"| {shown} | {figures} |", flush=True)


def _shape(row: dict) -> tuple:
    return row["size"], row["length"], row["batch_size"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=20,
        help="number of measured steps, of which the median counts",
    )
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--lengths", nargs="+", type=int, default=[length for length, _ in SHAPES])
    parser.add_argument("--variants", nargs="+", choices=[*OURS, *PEERS], default=[*OURS, *PEERS])
    parser.add_argument(
        "--output", type=pathlib.Path, required=True, help="JSON lines file of the finished rows"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if flags.one:
        which = json.loads(flags.one)
        print(json.dumps(which | measure(**which, rounds=flags.rounds)))
        return
    lines = flags.output.read_text(encoding="utf-8").splitlines() if flags.output.exists() else []
    rows = [json.loads(line) for line in lines]
    shapes = [shape for shape in SHAPES if shape[0] in flags.lengths]
    for size, (length, batch_size), variant in itertools.product(
        flags.sizes, shapes, flags.variants
    ):
        which = {"size": size, "length": length, "batch_size": batch_size, "variant": variant}
        if any(which.items() <= row.items() for row in rows):
            continue
        command = [sys.executable, __file__, *sys.argv[1:], "--one", json.dumps(which)]
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if ran.returncode:
            print(f"{which}: exit status {ran.returncode}", file=sys.stderr)
            continue
        rows.append(json.loads(ran.stdout.splitlines()[-1]))
        with flags.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(rows[-1]) + "\n")
    print_table(rows)


if __name__ == "__main__":
    main()
