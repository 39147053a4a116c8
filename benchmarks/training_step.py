#!/usr/bin/env python3
"""Compares the time of a pre-training step with that of its matrix products, and with Hugging Face
on PyTorch.

In: batches of random ids. Out: a table, and a line of JSON in --output for each finished row. Rows
that this file already contains are not measured again.

A step consists of forward pass, backward pass, clipping and the optimizer, with dropout 0.1,
sequences of 128 tokens with 20 predictions and a vocabulary of 30,522. The variants in bfloat16 are
set against products in bfloat16, and against Hugging Face under autocast. Each variant takes turns
with its products in a process of its own, whose medians count; then comes the next variant, and
after all of them the next process of the first one. The seconds of the processor, of all threads,
say more than the clock where there is other work.

    python benchmarks/training_step.py --cpus=0,1 --variants plain XLA bfloat16 --output=rows.jsonl
"""

import argparse
import collections
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

VOCAB, LENGTH, PREDICTIONS = 30522, 128, 20
BATCH_SIZES = {"base": 8, "small": 16, "mini": 32, "tiny": 32}  # 12/768, 4/512, 4/256, 2/128


class Variant(NamedTuple):
    """How our step computes."""

    dtype: str = "float32"
    jit_compile: bool = False


VARIANTS = {
    "plain": Variant(),
    "XLA": Variant(jit_compile=True),
    "bfloat16": Variant("bfloat16"),
    "bfloat16 XLA": Variant("bfloat16", jit_compile=True),
}
REPEATS_PER_PRODUCT = 4
PEER = "Hugging Face "  # and a type


class Product(NamedTuple):
    """A (batched) matrix product of the model; `a` is [batch, m, k] and `b` [batch, k, n] before
    transposition.

    Attributes:
        count: the number of times that one step computes it.
        batch: the number of products in one call; 1 means a plain product of two matrices.
        m, k, n: the sizes of the product.
        transpose: "NN", "NT" (`b` is stored transposed) or "TN" (`a` is stored transposed).
    """

    count: int
    batch: int
    m: int
    k: int
    n: int
    transpose: str = "NN"

    def with_gradients(self) -> list["Product"]:
        """Returns this product and the two products of its backward pass, for the gradients of
        both factors.
        """
        count, batch, m, k, n, transpose = self
        if transpose == "NN":
            return [
                self,
                Product(count, batch, m, n, k, "NT"),
                Product(count, batch, k, m, n, "TN"),
            ]
        return [self, Product(count, batch, m, n, k, "NN"), Product(count, batch, n, m, k, "TN")]


def list_products(config, batch_size: int) -> list[Product]:
    """Returns all matrix products of a step, forward and backward.

    The product with the segment embeddings is left out, because a table of two rows is hardly a
    matrix.
    """
    layers, hidden, inner = config.num_hidden_layers, config.hidden_size, config.intermediate_size
    heads = config.num_attention_heads
    head_size, tokens, words = hidden // heads, batch_size * LENGTH, batch_size * PREDICTIONS
    forward = [
        Product(4 * layers, 1, tokens, hidden, hidden),  # query, key, value, attention output
        Product(layers, batch_size * heads, LENGTH, head_size, LENGTH, "NT"),  # attention scores
        Product(layers, batch_size * heads, LENGTH, LENGTH, head_size),  # attention context
        Product(layers, 1, tokens, hidden, inner),  # intermediate
        Product(layers, 1, tokens, inner, hidden),  # output
        Product(1, 1, batch_size, hidden, hidden),  # pooler
        Product(1, 1, words, hidden, hidden),  # transform of the masked LM head
        Product(1, 1, words, hidden, VOCAB, "NT"),  # vocabulary
        Product(1, 1, batch_size, hidden, 2, "NT"),  # next sentence
    ]
    return [product for one in forward for product in one.with_gradients()]


def product_timer(product: Product, dtype: str):
    """Returns a function that runs only this product in a compiled loop, and returns the seconds
    per product.
    """
    import tensorflow as tf

    transpose_a, transpose_b = product.transpose == "TN", product.transpose == "NT"

    def random(rows, columns, transposed):
        shape = (columns, rows) if transposed else (rows, columns)
        return tf.cast(
            tf.random.normal(shape if product.batch == 1 else (product.batch, *shape)), dtype
        )

    a, b = random(product.m, product.k, transpose_a), random(product.k, product.n, transpose_b)
    out_shape = (
        (product.m, product.n) if product.batch == 1 else (product.batch, product.m, product.n)
    )

    @tf.function
    def repeated(a, b):
        out = tf.zeros(out_shape, dtype)
        for _ in tf.range(REPEATS_PER_PRODUCT):
            out = tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
        return out[..., :1, :1]

    def secs():
        start = time.perf_counter()
        repeated(a, b).numpy()
        return (time.perf_counter() - start) / REPEATS_PER_PRODUCT

    secs()
    return secs


def our_step(config, batch_size: int, variant: Variant = VARIANTS["plain"]):
    """Returns a function that makes one of our steps on a batch of arrays, whose first dimension
    is 1 step.
    """
    import tensorflow as tf

    from official_bert.checkpoints import named_variables
    from official_bert.modeling import BertPretrainer
    from official_bert.optimization import (
        EXCLUDED_FROM_DECAY,
        AdamWeightDecayOptimizer,
        WarmupLinearDecay,
    )
    from official_bert.tasks.pretraining.objective import PretrainingObjective
    from official_bert.training.loop import compiled_steps
    from official_bert.training.precision import computing_in
    from official_bert.training.step import TrainingStep

    with computing_in(variant.dtype):
        pretrainer = BertPretrainer(config)
    weights = {name: variable.value for name, variable in named_variables(pretrainer).items()}
    optimizer = AdamWeightDecayOptimizer(
        WarmupLinearDecay(1e-4, 10000, 100), 0.01, exclude_from_weight_decay=EXCLUDED_FROM_DECAY
    )
    optimizer.build(weights.items())
    objective = PretrainingObjective(pretrainer, batch_size)
    step = TrainingStep(
        objective, list(weights.values()), optimizer, run_seed=1, jit_compile=variant.jit_compile
    )
    run = compiled_steps(tf.distribute.get_strategy(), step)
    return lambda batch: run(batch, 1)


def our_timer(config, batch_size: int, variant: Variant = VARIANTS["plain"]):
    """Returns a function that makes one of our steps and returns its seconds."""
    import tensorflow as tf

    step = our_step(config, batch_size, variant)
    batch = {name: tf.constant(value[None]) for name, value in random_batch(batch_size).items()}
    return timed(lambda: step(batch))


def hugging_face_timer(config, batch_size: int, dtype: str):
    """Returns a function that makes one step of Hugging Face's model with PyTorch's AdamW and
    returns its seconds.

    In bfloat16 the forward pass is under autocast, as PyTorch's documentation advises. Only the 20
    masked positions have labels, but this class computes the product with the vocabulary for all
    128 positions.
    """
    import torch
    import transformers

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
    )
    model.train()
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    batch = {
        name: torch.from_numpy(value).long() for name, value in random_batch(batch_size).items()
    }
    labels = torch.full((batch_size, LENGTH), -100)
    labels.scatter_(1, batch["masked_lm_positions"], batch["masked_lm_ids"])

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = model(
                input_ids=batch["input_ids"],
                attention_mask=batch["input_mask"],
                token_type_ids=batch["segment_ids"],
                labels=labels,
                next_sentence_label=batch["next_sentence_labels"][:, 0],
            ).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad()
        return loss.item()

    return timed(step)


def timed(step):
    """Returns a function that runs `step` and returns its seconds, after two runs for tracing
    and optimizer slots.
    """
    step()
    step()

    def secs():
        start = time.perf_counter()
        step()
        return time.perf_counter() - start

    return secs


def random_batch(batch_size: int) -> dict:
    """Returns the seven features of a batch of random ids without padding."""
    import numpy as np

    random = np.random.default_rng(1)
    return {
        "input_ids": random.integers(0, VOCAB, (batch_size, LENGTH), np.int32),
        "input_mask": np.ones((batch_size, LENGTH), np.int32),
        "segment_ids": np.repeat(np.int32([[0, 1]]), LENGTH // 2, axis=1).repeat(
            batch_size, axis=0
        ),
        "masked_lm_positions": np.stack(
            [
                np.sort(random.permutation(LENGTH)[:PREDICTIONS]).astype(np.int32)
                for _ in range(batch_size)
            ]
        ),
        "masked_lm_ids": random.integers(0, VOCAB, (batch_size, PREDICTIONS), np.int32),
        "masked_lm_weights": np.ones((batch_size, PREDICTIONS), np.float32),
        "next_sentence_labels": random.integers(0, 2, (batch_size, 1), np.int32),
    }


def measure(size: str, variant: str, rounds: int) -> dict:
    """Measures one variant of one model size, or a peer, in turns with its products, and returns
    its row.
    """
    import resource

    from official_bert import BertConfig

    config, batch_size = BertConfig.from_size(size, VOCAB), BATCH_SIZES[size]
    dtype = variant.removeprefix(PEER) if variant.startswith(PEER) else VARIANTS[variant].dtype
    load = os.getloadavg()[0]
    if variant.startswith(PEER):
        timers = {"step": hugging_face_timer(config, batch_size, dtype)}
    else:
        timers = {"step": our_timer(config, batch_size, VARIANTS[variant])}
        timers |= {
            product: product_timer(product, dtype) for product in list_products(config, batch_size)
        }
    secs, processor_secs = collections.defaultdict(list), collections.defaultdict(list)
    for _ in range(rounds):
        for what, timer in timers.items():
            start = time.process_time()
            secs[what].append(timer())
            repeats = 1 if what == "step" else REPEATS_PER_PRODUCT
            processor_secs[what].append((time.process_time() - start) / repeats)

    def sum_products(values):
        sums = [
            product.count * statistics.median(values[product])
            for product in timers
            if product != "step"
        ]
        return sum(sums) if sums else None

    return {
        "machine": machine(),
        "load": [round(load, 2), round(os.getloadavg()[0], 2)],
        "size": size,
        "model": f"{config.num_hidden_layers}/{config.hidden_size}",
        "batch_size": batch_size,
        "variant": variant,
        "rounds": rounds,
        "step_secs": statistics.median(secs["step"]),
        "least_step_secs": min(secs["step"]),
        "products_secs": sum_products(secs),
        "processor_step_secs": statistics.median(processor_secs["step"]),
        "processor_products_secs": sum_products(processor_secs),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
    }


def machine() -> str:
    """Returns the processor, what it multiplies with, and how many of its cores this process
    has.
    """
    facts = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    (name,) = re.findall(r"^model name\s*: (.*)$", facts, re.MULTILINE)
    units = [
        unit for unit in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if unit in facts.split()
    ]
    return f"{name} with {', '.join(units)}; cores: {len(os.sched_getaffinity(0))}"


def medians(rows: list[dict], clock: str = "") -> list[dict]:
    """Returns a row for each size and variant: medians of its processes and the peer's;
    "processor_" is a clock.
    """

    def median(size, variant, what):
        values = [
            row[f"{clock}{what}_secs"]
            for row in rows
            if (row["size"], row["variant"]) == (size, variant)
        ]
        return statistics.median(values) if values else None

    return [
        row
        | {f"{what}_secs": median(size, variant, what) for what in ("step", "products")}
        | {"peer_secs": median(size, PEER + VARIANTS[variant].dtype, "step")}
        for (size, variant), row in {(row["size"], row["variant"]): row for row in rows}.items()
        if variant in VARIANTS
    ]


def print_table(rows: list[dict]):
    """Prints the rows as a table."""
    print(
        "\n| model | batch | step | secs per step | secs of its products | matmul share | Hugging "
        "Face, secs | lead |"
    )
    print("|---|--:|---|--:|--:|--:|--:|--:|")
    for row in rows:
        step, products, peer = row["step_secs"], row["products_secs"], row["peer_secs"]
        against = f"{peer:.3f} | {peer / step:.2f}x" if peer else "not installed | "
        print(
            f"| {row['model']} | {row['batch_size']} | {row['variant']} | {step:.3f} | "
            f"{products:.3f} | {products / step:.2f} | {against} |",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpus", default="0,1", help="cores to run on; each gets one thread")
    parser.add_argument(
        "--rounds", type=int, default=9, help="number of measurements, of which the median counts"
    )
    parser.add_argument(
        "--processes", type=int, default=3, help="number of processes for each variant"
    )
    parser.add_argument("--sizes", nargs="+", choices=BATCH_SIZES, default=list(BATCH_SIZES))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=["plain", "bfloat16"])
    parser.add_argument("--nopeer", action="store_true", help="leave Hugging Face out")
    parser.add_argument(
        "--output", help="JSON lines file: finished rows go there and are not measured again"
    )
    # What this process measures, for the one that starts it.
    parser.add_argument("--measured", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.measured:
        prepare_threads(
            [int(cpu) for cpu in flags.cpus.split(",")], want_peer=flags.measured.startswith(PEER)
        )
        print(json.dumps(measure(flags.sizes[0], flags.measured, flags.rounds)))
        return
    output = pathlib.Path(flags.output) if flags.output else None
    lines = output.read_text(encoding="utf-8").splitlines() if output and output.exists() else []
    rows = [json.loads(line) for line in lines]
    variants = flags.variants + (
        [] if flags.nopeer else sorted({PEER + VARIANTS[one].dtype for one in flags.variants})
    )
    for turn in range(flags.processes):
        for size, variant in itertools.product(flags.sizes, variants):
            if sum((row["size"], row["variant"]) == (size, variant) for row in rows) > turn:
                continue
            command = [
                sys.executable,
                __file__,
                "--measured",
                variant,
                "--sizes",
                size,
                "--cpus",
                flags.cpus,
            ]
            command += ["--rounds", str(flags.rounds)]
            finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            rows.append(json.loads(finished.stdout.splitlines()[-1]))
            if output:
                with output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    print_table(medians(rows))
    print("\nIn seconds of the processor, of all threads:")
    print_table(medians(rows, "processor_"))


def prepare_threads(cpus: list[int], want_peer: bool):
    """Pins the process to some cores and gives TensorFlow, and for a peer PyTorch, a thread for
    each.
    """
    os.sched_setaffinity(0, cpus)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(len(cpus))
    if want_peer:
        import torch

        torch.set_num_threads(len(cpus))


if __name__ == "__main__":
    main()
