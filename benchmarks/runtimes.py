#!/usr/bin/env python3
"""Compares the formats of an export, in float32 and in 8 bits, with PyTorch eager and onnxruntime,
with equal weights.

In: random ids without padding; the benchmark needs
`pip install --group bench --editable '.[runtimes]'`. Out: a table of milliseconds per batch, and a
line of JSON in --output for each finished row. Rows that this file already contains are not
measured again.

Ours are exports of `official-bert export_saved_model --export_format=saved_model,onnx,litert` and
of `onnx,litert` with `--dtype=int8`, opened as official-bert predict opens them. The peers run
Hugging Face's
class: PyTorch in `inference_mode`, and onnxruntime with the graph of `torch.onnx`, in float32 and
after its own `quantize_dynamic` with a scale for each channel. Each has one thread per core; they
take turns in one process, and the median of all calls counts. --columns measures only some of them.
On a busy machine, only --processor_time with one core is meaningful.
"""

import argparse
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import serving
from finetuning import device_name

FLOAT32 = ("saved_model", "onnx", "litert")
INT8 = ("onnx, int8", "litert, int8")
PEERS = ("PyTorch", "onnxruntime", "onnxruntime, int8")
COLUMNS = (*FLOAT32, *INT8, *PEERS)


def our_runtimes(
    folder: pathlib.Path, threads: int, columns: list[str]
) -> dict[str, serving.Runtime]:
    """Exports a model of pairs in the formats of some columns, and returns what answers."""
    from official_bert import catalog
    from official_bert.extensions.runtimes.options import EXPORT_FORMATS
    from official_bert.serving import model as serving_model
    from official_bert.serving.exported_model import OpenedExport

    runtimes = {}
    for dtype, dtype_columns in (("float32", FLOAT32), ("int8", INT8)):
        formats = [name.split(",")[0] for name in dtype_columns if name in columns]
        if not formats:
            continue
        export_dir = str(folder / dtype)
        options = catalog.options_class("export_saved_model")(
            task_name="MRPC",
            export_dir=export_dir,
            export_format=list(formats),
            dtype=dtype,
            init_checkpoint=str(folder),
            bert_config_file=str(folder / "config.json"),
            vocab_file=str(folder / "vocab.txt"),
        )
        serving_model.export(options)
        for name in formats:
            opened = OpenedExport(export_dir, threads, settings={"runtime": EXPORT_FORMATS[name]})
            column = name if dtype == "float32" else f"{name}, int8"
            runtimes[column] = lambda features, opened=opened: [
                opened("serving_default", features)["logits"]
            ]
    return runtimes


def peers(hugging_face, folder: pathlib.Path, threads: int) -> dict[str, serving.Runtime]:
    from onnxruntime import quantization

    whole = serving.onnx_runtime("classifier", hugging_face, folder, threads)
    quantization.quantize_dynamic(
        folder / "model.onnx",
        folder / "int8.onnx",
        per_channel=True,
        reduce_range=True,
        weight_type=quantization.QuantType.QInt8,
        # Of values whose type the graph does not say: float32.
        extra_options={"DefaultTensorType": 1},
    )
    return {
        "PyTorch": serving.pytorch_runtime("classifier", hugging_face),
        "onnxruntime": whole,
        "onnxruntime, int8": serving.session_runtime("classifier", folder / "int8.onnx", threads),
    }


def ratio(row: dict, peer: str, ours: tuple[str, ...]) -> str:
    """Returns how many times as fast as a peer the fastest of ours is; "" if one has no time."""
    times = [row[name] for name in ours if name in row]
    if not times or peer not in row:
        return ""
    return f"{row[peer] / min(times):.2f}x"


def print_table(rows):
    titles = [f"{name}, ms" for name in COLUMNS]
    titles += ["fastest to onnxruntime", "8 bits to onnxruntime", "8 bits to its 8 bits"]
    print("\n| model | batch | length | " + " | ".join(titles) + " |")
    print("|---|--:|--:|" + "--:|" * len(titles))
    for row in rows:
        cells = [f"{row[name]:.1f}" if name in row else "" for name in COLUMNS]
        cells += [
            ratio(row, "onnxruntime", FLOAT32),
            ratio(row, "onnxruntime", INT8),
            ratio(row, "onnxruntime, int8", INT8),
        ]
        print(
            "| "
            + " | ".join([row["model"], str(row["batch_size"]), str(row["length"]), *cells])
            + " |",
            flush=True,
        )


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
    parser.add_argument("--columns", nargs="+", default=COLUMNS, choices=COLUMNS)
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
            runtimes |= peers(hugging_face, folder, threads)
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
