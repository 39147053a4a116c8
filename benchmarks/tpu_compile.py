#!/usr/bin/env python3
"""Compiles the pre-training step for TPUs, without a TPU, and tells how much of their memory it
takes.

In: sizes of models and batches. Out: a table, and a line of JSON in --output for each finished row.
Rows that this file already contains are not compiled again.

TensorFlow lowers the step to HLO here; compile_for_tpu.py compiles it with the compiler of libtpu
in the virtual environment that `make install-tpu-compile` makes.
The step is that of run_pretraining.py on TPU, in --dtype=float32 or bfloat16, with dropout 0.1 and
30,522 words: words are looked up by one-hot products, and gradients are added up over the replicas
before the clipping. With --num_replicas=16 and --topologies=v4:2x2x4 it is the program of a slice
of four hosts with four cores each.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import NamedTuple
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

COMPILER = ROOT / ".venv-tpu-compile" / "bin" / "python"
VOCAB = 30522
PREDICTIONS = {128: 20, 512: 76}
NUM_REPLICAS = 4  # every topology has at least as many
DTYPES = ("float32", "bfloat16")
STEPS = (
    "base:128:32",
    "base:512:8",
    "large:128:32",
    "large:512:8",
    "base:128:128",
    "base:512:32",
    "base:128:32:bfloat16",
    "base:128:128:bfloat16",
    "large:512:8:bfloat16",
)
TOPOLOGIES = ("v4:2x2x1", "v5e:2x2")


class Step(NamedTuple):
    """A step to compile.

    Attributes:
        model: a named size of BertConfig.
        length: tokens of a sequence.
        batch_size: sequences of each replica.
        recompute_layers: whether the backward pass computes the inside of each layer again.
        dtype: the type of the matrix products.
    """

    model: str
    length: int
    batch_size: int
    recompute_layers: bool = False
    dtype: str = "float32"

    @classmethod
    def parse(cls, text: str) -> "Step":
        """Reads MODEL:LENGTH:BATCH, behind which :recompute and :bfloat16 may stand."""
        model, length, batch_size, *rest = text.split(":")
        if unknown := set(rest) - {"recompute", *DTYPES}:
            raise argparse.ArgumentTypeError(
                f"{text}: {unknown.pop()} is neither recompute nor a type of {DTYPES}"
            )
        dtype = next((dtype for dtype in DTYPES if dtype in rest), "float32")
        return cls(model, int(length), int(batch_size), "recompute" in rest, dtype)


def lowered(
    step: Step, num_replicas: int = NUM_REPLICAS, stage: str = "hlo_serialized"
) -> bytes | str:
    """Returns the HLO module of one replica's program, serialized, or at another stage of XLA."""
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    from official_bert import BertConfig
    from official_bert.checkpoints import named_variables
    from official_bert.features import pretraining_features
    from official_bert.modeling import BertPretrainer, cpu_layers
    from official_bert.optimization import (
        EXCLUDED_FROM_DECAY,
        AdamWeightDecayOptimizer,
        WarmupLinearDecay,
    )
    from official_bert.tasks.pretraining.objective import PretrainingObjective
    from official_bert.training import precision
    from official_bert.training import step as step_module

    config = BertConfig.from_size(step.model, VOCAB)
    # A TPU runs the plain operations. This machine has none, so without the patch the step would
    # contain the functions that XLA compiles for CPUs.
    with (
        precision.computing_in(step.dtype),
        mock.patch.object(cpu_layers, "is_available", return_value=False),
    ):
        pretrainer = BertPretrainer(
            config, use_one_hot_embeddings=True, recompute_layers=step.recompute_layers
        )
    weights = {name: variable.value for name, variable in named_variables(pretrainer).items()}
    optimizer = AdamWeightDecayOptimizer(
        WarmupLinearDecay(1e-4, 1_000_000, 10_000),
        0.01,
        exclude_from_weight_decay=EXCLUDED_FROM_DECAY,
    )
    optimizer.build(weights.items())
    objective = PretrainingObjective(pretrainer, step.batch_size * num_replicas)
    training_step = step_module.TrainingStep(
        objective, list(weights.values()), optimizer, run_seed=1
    )
    batch = {
        feature.name: tf.zeros([step.batch_size, feature.length], feature.dtype)
        for feature in pretraining_features(step.length, PREDICTIONS[step.length])
    }

    def all_reduced(values):
        """The all-reduce of a TPU: outside TPUStrategy, `tf.distribute` knows of one replica
        only.
        """
        replicas = tf.constant([list(range(num_replicas))])
        return tf.nest.map_structure(
            lambda value: gen_xla_ops.xla_all_reduce(
                value, replicas, reduce_op="Add", mode="CrossReplica"
            ),
            values,
        )

    compiled = tf.function(training_step.update, jit_compile=True, autograph=False)
    with mock.patch.object(step_module, "all_reduced", all_reduced):
        return compiled.experimental_get_compiler_ir(batch)(stage=stage)


def lowered_in_a_process(step: Step, num_replicas: int) -> bytes:
    """Returns what `lowered` returns; a process that ends gives its memory back before the
    compiler needs it.
    """
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        return pool.submit(lowered, step, num_replicas).result()


def compiled_for_tpu(module: pathlib.Path, topology: str, num_replicas: int = NUM_REPLICAS) -> dict:
    """Compiles a module in a process of the other virtual environment, and returns what it
    prints.
    """
    arguments = [module, f"--topology={topology}", f"--num_replicas={num_replicas}"]
    finished = subprocess.run(
        [COMPILER, ROOT / "benchmarks" / "compile_for_tpu.py", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode:
        sys.exit(f"compiling for {topology} failed:\n{finished.stderr[-3000:]}")
    return json.loads(finished.stdout)


def print_table(rows: list[dict]):
    """Prints the rows as a table for docs/tpu.md."""
    print(
        "\n| model | length | batch of a core | TPU | weights and slots | program | temporary | "
        "all, GiB |"
    )
    print("|---|--:|--:|---|--:|--:|--:|--:|")
    for row in rows:
        parts = [row.get(f"{part}_bytes") for part in ("argument", "program", "temporary", "hbm")]
        cells = ["" if part is None else f"{part / 2**30:.2f}" for part in parts]
        if not row["fits"]:
            cells[-1] = "does not fit"
        model = row["model"] + (", recomputed" if row["recompute_layers"] else "")
        model += ", bfloat16" if row.get("dtype") == "bfloat16" else ""
        model += f", {row['num_replicas']} replicas" if row["num_replicas"] != NUM_REPLICAS else ""
        print(
            f"| {model} | {row['length']} | {row['batch_size']} | {row['device']} | "
            f"{' | '.join(cells)} |"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--steps",
        nargs="+",
        type=Step.parse,
        default=[Step.parse(text) for text in STEPS],
        help="MODEL:LENGTH:BATCH, the batch being that of one core, behind which :recompute and "
        f":bfloat16 may stand; {' '.join(STEPS)}",
    )
    parser.add_argument("--topologies", nargs="+", default=TOPOLOGIES)
    parser.add_argument(
        "--num_replicas",
        type=int,
        default=NUM_REPLICAS,
        help="the cores of the topology that are used",
    )
    parser.add_argument(
        "--output", type=pathlib.Path, help="JSON lines file: finished rows go there"
    )
    flags = parser.parse_args()
    if not COMPILER.exists():
        sys.exit(f"{COMPILER} is not there; run `make install-tpu-compile`")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

    finished = {}
    if flags.output and flags.output.exists():
        for row in map(json.loads, flags.output.read_text(encoding="utf-8").splitlines()):
            step_fields = {field: row[field] for field in Step._fields if field in row}
            finished[Step(**step_fields), row["topology"], row["num_replicas"]] = row
    count = flags.num_replicas
    for step in flags.steps:
        missing = [
            topology for topology in flags.topologies if (step, topology, count) not in finished
        ]
        if not missing:
            continue
        with tempfile.NamedTemporaryFile(suffix=".hlo.pb") as module:
            module.write(lowered_in_a_process(step, count))
            module.flush()
            for topology in missing:
                row = step._asdict() | {"topology": topology, "num_replicas": count}
                row |= compiled_for_tpu(pathlib.Path(module.name), topology, count)
                finished[step, topology, count] = row
                print(json.dumps(row), flush=True)
                if flags.output:
                    with flags.output.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
    print_table(
        [finished[step, topology, count] for step in flags.steps for topology in flags.topologies]
    )


if __name__ == "__main__":
    main()
