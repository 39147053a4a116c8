"""Converts a SavedModel of tensors into a file of another runtime, and weights to 8 bits, by the
runtimes' own tools.

In: the folder of a SavedModel and the names of its signatures. Out: the files of `CONVERTERS`'
formats in a folder.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import tensorflow as tf
from absl import logging

from official_bert.config import BertConfig
from official_bert.extensions.runtimes.options import INT8, LITERT, ONNX
from official_bert.extensions.runtimes.runtimes import LiteRtRuntime, OnnxRuntime, import_runtime
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.options.serving import SAVED_MODEL
from official_bert.serving.exported_model import DEFAULT

_OPSET = "17"


def _to_litert(saved_model: str, folder: str, signatures: Sequence[str], dtype: str) -> str:
    """Writes model.tflite with all signatures; with int8 the weights have 8 bits and a scale for
    each channel.
    """
    converter = tf.lite.TFLiteConverter.from_saved_model(
        saved_model, signature_keys=list(signatures)
    )
    if dtype == INT8:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    with files.open_file(os.path.join(folder, LiteRtRuntime.FILE), "wb") as file:
        file.write(converter.convert())
    return f"tf.lite {tf.__version__}"


def _to_onnx(saved_model: str, folder: str, signatures: Sequence[str], dtype: str) -> str:
    """Writes model.onnx, and <signature>.onnx of each further one; with int8 as in `_to_litert`."""
    for signature in signatures:
        name = OnnxRuntime.FILE if signature == DEFAULT else f"{signature}.onnx"
        path, whole = os.path.join(folder, name), os.path.join(folder, f"{name}.float32")
        arguments = [
            "--saved-model",
            saved_model,
            "--signature_def",
            signature,
            "--opset",
            _OPSET,
            "--output",
            whole,
        ]
        # A process of its own, since protobuf's default implementation never frees the many copies
        # of the weights that tf2onnx makes, and the choice of another one is for a whole process.
        finished = subprocess.run(
            [sys.executable, "-m", "tf2onnx.convert", *arguments],
            env=os.environ
            | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python", "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        if finished.returncode:
            last = (finished.stderr.strip().splitlines() or [f"status {finished.returncode}"])[-1]
            raise InputError(f"--export_format={ONNX}: tf2onnx cannot convert {signature} ({last})")
        if dtype == INT8:
            quantization = import_runtime("onnxruntime.quantization")
            weight_type = quantization.QuantType.QInt8
            quantization.quantize_dynamic(
                whole, path, per_channel=True, reduce_range=True, weight_type=weight_type
            )
            os.remove(whole)
        else:
            os.rename(whole, path)
    return " ".join(
        f"{package} {metadata.version(package)}" for package in ("tf2onnx", "onnxruntime")
    )


# Format -> a function that converts, and the packages of the extra `runtimes` that it and the runtime
# need.
CONVERTERS = {
    ONNX: (_to_onnx, ("tf2onnx", "onnx", "onnxruntime")),
    LITERT: (_to_litert, ("ai_edge_litert",)),
}


def check_packages(export_format: str):
    """Raises InputError if a package for the format is not installed, before a model is built."""
    for package in CONVERTERS[export_format][1]:
        if importlib.util.find_spec(package) is None:
            raise InputError(f"{package}: is not installed; pip install 'official-bert[runtimes]'")


def check_model(export_format: str, config: BertConfig):
    """Raises InputError if the runtime of the format cannot compute a model of this configuration."""
    if export_format == ONNX and config.num_attention_heads == 1:
        raise InputError(
            f"--export_format={ONNX}: onnxruntime's fusion of scores and scale fails for a model "
            f"with one attention head; give {LITERT} or {SAVED_MODEL}"
        )


def convert(
    saved_model: str,
    folder: str,
    *,
    formats: Sequence[str],
    dtype: str,
    signatures: Sequence[str],
) -> dict[str, Any]:
    """Writes the files of formats.

    Args:
        saved_model: the folder of the SavedModel.
        folder: the folder of the files.
        formats: names of CONVERTERS.
        dtype: float32 or int8.
        signatures: the names of the signatures to convert.

    Returns:
        What the record of an export says of the files.
    """
    versions = {}
    for name in formats:
        logging.info("Converting to %s in %s ...", name, dtype)
        versions[name] = CONVERTERS[name][0](saved_model, folder, signatures, dtype)
    digests = {
        name: files.sha256(os.path.join(folder, name)) for name in sorted(os.listdir(folder))
    }
    return {
        "converters": versions,
        "dtype": dtype,
        "signatures": list(signatures),
        "sha256": digests,
    }
