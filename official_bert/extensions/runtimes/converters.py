"""Converts a SavedModel of tensors into files of other runtimes, by the tools of these runtimes.

Input: the folder of a SavedModel and the names of its signatures. Output: the files of the formats
of `CONVERTERS` in a folder, with weights of 32 or 8 bits.
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
    """Writes model.tflite with all signatures, and returns the version of the converter.

    With int8 the weights have 8 bits and a scale for each channel.
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
    """Writes model.onnx, and <signature>.onnx of each further signature.

    With int8 the weights are those of `_to_litert`. Returns the versions of the converters.
    """
    for signature in signatures:
        name = OnnxRuntime.FILE if signature == DEFAULT else f"{signature}.onnx"
        path = os.path.join(folder, name)
        float32_path = os.path.join(folder, f"{name}.float32")
        _run_tf2onnx(saved_model, signature, float32_path)
        if dtype == INT8:
            quantization = import_runtime("onnxruntime.quantization")
            quantization.quantize_dynamic(
                float32_path,
                path,
                per_channel=True,
                reduce_range=True,
                weight_type=quantization.QuantType.QInt8,
            )
            os.remove(float32_path)
        else:
            os.rename(float32_path, path)
    packages = ("tf2onnx", "onnxruntime")
    return " ".join(f"{package} {metadata.version(package)}" for package in packages)


def _run_tf2onnx(saved_model: str, signature: str, path: str):
    """Converts a signature in another process.

    protobuf's default implementation never frees the many copies of the weights that tf2onnx makes.
    The environment of a process chooses the implementation.
    """
    command = [sys.executable, "-m", "tf2onnx.convert"]
    command += ["--saved-model", saved_model]
    command += ["--signature_def", signature]
    command += ["--opset", _OPSET]
    command += ["--output", path]
    variables = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python", "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.run(
        command,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"status {process.returncode}"]
        raise InputError(
            f"--export_format={ONNX}: tf2onnx cannot convert {signature} ({lines[-1]})"
        )


# Format -> a function that converts, and the packages of the extra `runtimes` that the conversion
# and the runtime need.
CONVERTERS = {
    ONNX: (_to_onnx, ("tf2onnx", "onnx", "onnxruntime")),
    LITERT: (_to_litert, ("ai_edge_litert",)),
}


def check_packages(export_format: str) -> None:
    """Check that the packages for a format are installed, before a model is built.

    Args:
        export_format: a key of `CONVERTERS`.

    Raises:
        InputError: a package is not installed.
    """
    for package in CONVERTERS[export_format][1]:
        if importlib.util.find_spec(package) is None:
            raise InputError(f"{package}: is not installed; pip install 'official-bert[runtimes]'")


def check_model(export_format: str, config: BertConfig) -> None:
    """Check that the runtime of a format can compute a model.

    Args:
        export_format: a key of `CONVERTERS`.
        config: the configuration of the model.

    Raises:
        InputError: the runtime cannot.
    """
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
    """Write the files of formats.

    Args:
        saved_model: the folder of the SavedModel.
        folder: the folder of the files.
        formats: keys of `CONVERTERS`.
        dtype: float32 or int8.
        signatures: the names of the signatures to convert.

    Returns:
        The fields of the files for the record of the export.

    Raises:
        InputError: a signature cannot be converted.
    """
    versions = {}
    for name in formats:
        logging.info("Converting to %s in %s ...", name, dtype)
        write_format, _ = CONVERTERS[name]
        versions[name] = write_format(saved_model, folder, signatures, dtype)
    digests = {}
    for name in sorted(os.listdir(folder)):
        digests[name] = files.sha256(os.path.join(folder, name))
    return {
        "converters": versions,
        "dtype": dtype,
        "signatures": list(signatures),
        "sha256": digests,
    }
