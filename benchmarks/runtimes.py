#!/usr/bin/env python3
"""Compares the formats of an export, in float32, bfloat16 and 8 bits, with PyTorch eager,
onnxruntime and OpenVINO, with equal weights.

In: random ids without padding; the benchmark needs
`pip install --group bench --editable '.[runtimes]'`, and `pip install openvino nncf` for the
columns with OpenVINO. Out: a table of milliseconds per batch, and a line of JSON in --output for
each finished row. Rows that this file already contains are not measured again.

Ours are exports of `official-bert export_saved_model --export_format=saved_model,onnx,litert`, with
each `--dtype`, opened as official-bert predict opens them. The column "onnx in openvino" is our
ONNX file with `--runtime=openvino`, in bfloat16 with `--runtime=openvino_bfloat16`. The peers run
Hugging Face's class: PyTorch in `inference_mode`; onnxruntime with the graph of `torch.onnx`, in
float32 and after its own `quantize_dynamic` with a scale for each channel; OpenVINO with the same
graph, in float32 and bfloat16, and after `nncf.quantize`, which measures the ranges of all products
on random ids. Each has one thread per core; they take turns in one process, and the median of all
calls counts. --columns measures only some of them. On a busy machine, only --processor_time with
one core is meaningful.
"""

import argparse
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import serving
from finetuning import device_name

# Our columns -> the export format, --dtype and --runtime of each.
OURS = {
    "saved_model": ("saved_model", "float32", "tensorflow"),
    "onnx": ("onnx", "float32", "onnxruntime"),
    "litert": ("litert", "float32", "litert"),
    "onnx in openvino": ("onnx", "float32", "openvino"),
    "saved_model, bfloat16": ("saved_model", "bfloat16", "tensorflow"),
    "onnx in openvino, bfloat16": ("onnx", "float32", "openvino_bfloat16"),
    "onnx, int8": ("onnx", "int8", "onnxruntime"),
    "litert, int8": ("litert", "int8", "litert"),
}
PEERS = (
    "PyTorch",
    "onnxruntime",
    "onnxruntime, int8",
    "openvino",
    "openvino, bfloat16",
    "openvino, int8",
)
COLUMNS = (*OURS, *PEERS)
# The types of ours that are compared with a peer.
COMPARED = (
    ("float32", "onnxruntime"),
    ("int8", "onnxruntime"),
    ("int8", "onnxruntime, int8"),
    ("float32", "openvino"),
    ("bfloat16", "openvino, bfloat16"),
    ("int8", "openvino, int8"),
)
WITHOUT_OPENVINO = [name for name in COLUMNS if "openvino" not in name]
NUM_CALIBRATION_BATCHES = 20


def our_runtimes(
    folder: pathlib.Path, threads: int, columns: list[str]
) -> dict[str, serving.Runtime]:
    """Exports a model of pairs in the formats of some columns, and returns what answers."""
    from official_bert import catalog
    from official_bert.serving import model as serving_model
    from official_bert.serving.exported_model import OpenedExport

    formats_by_dtype: dict[str, list[str]] = {}
    for export_format, dtype, _ in [OURS[name] for name in columns if name in OURS]:
        formats = formats_by_dtype.setdefault(dtype, [])
        if export_format not in formats:
            formats.append(export_format)
    for dtype, formats in formats_by_dtype.items():
        options = catalog.options_class("export_saved_model")(
            task_name="MRPC",
            export_dir=str(folder / dtype),
            export_format=formats,
            dtype=dtype,
            init_checkpoint=str(folder),
            bert_config_file=str(folder / "config.json"),
            vocab_file=str(folder / "vocab.txt"),
        )
        serving_model.export(options)
    runtimes = {}
    for column in columns:
        if column not in OURS:
            continue
        _, dtype, runtime = OURS[column]
        opened = OpenedExport(str(folder / dtype), threads, settings={"runtime": runtime})
        runtimes[column] = lambda features, opened=opened: [
            opened("serving_default", features)["logits"]
        ]
    return runtimes


def peers(
    hugging_face, folder: pathlib.Path, threads: int, columns: list[str]
) -> dict[str, serving.Runtime]:
    """Returns what answers for the columns of the peers."""
    from onnxruntime import quantization

    runtimes = {
        "PyTorch": serving.pytorch_runtime("classifier", hugging_face),
        "onnxruntime": serving.onnx_files("classifier", hugging_face, folder, threads),
    }
    if "onnxruntime, int8" in columns:
        quantization.quantize_dynamic(
            folder / "model.onnx",
            folder / "int8.onnx",
            per_channel=True,
            reduce_range=True,
            weight_type=quantization.QuantType.QInt8,
            # Of values whose type the graph does not say: float32.
            extra_options={"DefaultTensorType": 1},
        )
        runtimes["onnxruntime, int8"] = serving.session_runtime(
            "classifier", folder / "int8.onnx", threads
        )
    return runtimes | openvino_peers(hugging_face.config.vocab_size, folder, threads, columns)


def openvino_peers(
    vocab_size: int, folder: pathlib.Path, threads: int, columns: list[str]
) -> dict[str, serving.Runtime]:
    """Returns OpenVINO with the graph of torch.onnx, by column."""
    chosen = [name for name in columns if name in PEERS and name.startswith("openvino")]
    if not chosen:
        return {}
    import openvino

    core = openvino.Core()
    runtimes = {}
    for name in chosen:
        model = core.read_model(folder / "model.onnx")
        if name.endswith("int8"):
            import nncf

            batches = [
                their_features(serving.random_features(8, 128, vocab_size, seed))
                for seed in range(NUM_CALIBRATION_BATCHES)
            ]
            transformer = nncf.ModelType.TRANSFORMER
            model = nncf.quantize(
                model, nncf.Dataset(batches), model_type=transformer, subset_size=len(batches)
            )
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "bf16" if name.endswith("bfloat16") else "f32",
        }
        compiled = core.compile_model(model, "CPU", settings)
        runtimes[name] = lambda features, compiled=compiled: [compiled(their_features(features))[0]]
    return runtimes


def their_features(features: serving.Features) -> serving.Features:
    return {serving.HUGGING_FACE_NAMES[name]: value for name, value in features.items()}


def name_dtype(column: str) -> str:
    """Returns the type in which a column computes."""
    return next((name for name in ("bfloat16", "int8") if name in column), "float32")


def ratio(row: dict, dtype: str, peer: str) -> str:
    """Returns how many times as fast as a peer the fastest of ours in a type is; "" if one of them
    has no time.
    """
    times = [row[name] for name in OURS if name in row and name_dtype(name) == dtype]
    if not times or peer not in row:
        return ""
    return f"{row[peer] / min(times):.2f}x"


def print_table(rows):
    rows = list(rows)
    columns = [name for name in COLUMNS if any(name in row for row in rows)]
    compared = [(dtype, peer) for dtype, peer in COMPARED if peer in columns]
    titles = [f"{name}, ms" for name in columns]
    titles += [f"our {dtype} to {peer}" for dtype, peer in compared]
    print("\n| model | batch | length | " + " | ".join(titles) + " |")
    print("|---|--:|--:|" + "--:|" * len(titles))
    for row in rows:
        cells = [row["model"], str(row["batch_size"]), str(row["length"])]
        cells += [f"{row[name]:.1f}" if name in row else "" for name in columns]
        cells += [ratio(row, dtype, peer) for dtype, peer in compared]
        print("| " + " | ".join(cells) + " |", flush=True)


def row_key(row: dict) -> tuple:
    return row["model"], row["batch_size"], row["length"], row.get("clock", "wall")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpus", default="0,1", help="cores to run on; each gets one thread")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each runtime")
    parser.add_argument("--secs", type=float, default=1.0, help="minimum seconds of one turn")
    parser.add_argument(
        "--models", nargs="+", default=serving.MODELS, help="layers/width, such as 4/256"
    )
    parser.add_argument("--batch_sizes", nargs="+", type=int, default=serving.BATCH_SIZES)
    parser.add_argument("--lengths", nargs="+", type=int, default=serving.LENGTHS)
    parser.add_argument("--columns", nargs="+", default=WITHOUT_OPENVINO, choices=COLUMNS)
    parser.add_argument("--processor_time", action="store_true", help="instead of elapsed time")
    parser.add_argument("--output", required=True, help="JSON lines file")
    flags = parser.parse_args()
    output = pathlib.Path(flags.output)
    rows = (
        map(json.loads, output.read_text(encoding="utf-8").splitlines()) if output.exists() else ()
    )
    finished = {row_key(row): row for row in rows}
    cpus = [int(cpu) for cpu in flags.cpus.split(",")]
    threads = serving.prepare_threads(cpus)
    shapes = [(batch_size, length) for batch_size in flags.batch_sizes for length in flags.lengths]
    for model in flags.models:
        clock = "processor" if flags.processor_time else "wall"
        missing = [shape for shape in shapes if (model, *shape, clock) not in finished]
        if not missing:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            hugging_face = serving.make_hugging_face(model, "classifier", folder)
            runtimes = our_runtimes(folder, threads, flags.columns)
            runtimes |= peers(hugging_face, folder, threads, flags.columns)
            runtimes = {name: runtimes[name] for name in flags.columns}
            megabytes = {}
            for path in sorted(folder.glob("*/1/model.*")):
                dtype = path.parent.parent.name
                megabytes[f"{dtype}{path.suffix}"] = round(path.stat().st_size / 1e6)
            for batch_size, length in missing:
                features = serving.random_features(
                    batch_size, length, hugging_face.config.vocab_size
                )
                row = {
                    "model": model,
                    "batch_size": batch_size,
                    "length": length,
                    "device": device_name(),
                    "clock": clock,
                }
                row["megabytes"] = megabytes
                row |= serving.measure(runtimes, features, flags, ours=flags.columns[0])
                finished[row_key(row)] = row
                print_table([row])
                with output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    print_table(finished.values())


if __name__ == "__main__":
    main()
