"""Converts a model into files of other runtimes.

Input: a model and the names of its signatures. Output: the files of the formats of `CONVERTERS` in
a folder, with weights of 32, 16 or 8 bits. ONNX is written here, and LiteRT by TensorFlow's
converter.
"""

import functools
import importlib.util
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import version as metadata_version
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from official_bert.config import BertConfig
from official_bert.extensions.runtimes import onnx_encoder, onnx_writer
from official_bert.extensions.runtimes.options import INT8, LITERT, ONNX
from official_bert.extensions.runtimes.runtimes import LiteRtRuntime, OnnxRuntime
from official_bert.features import ENCODER_INPUTS, MASKED_LM_POSITIONS
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.serving.export import TrainedModel
from official_bert.serving.exported_model import DEFAULT
from official_bert.version import __version__


class ConversionSource(NamedTuple):
    """What a converter reads.

    Attributes:
        built: the model.
        save: saves the SavedModel in a folder.
        signatures: the names of the signatures to convert.
        dtype: the type of the weights: float32, float16 or int8.
    """

    built: TrainedModel
    save: Callable[[str], None]
    signatures: Sequence[str]
    dtype: str


def _to_litert(source: ConversionSource, folder: str) -> str:
    """Writes model.tflite with all signatures, and returns the version of the converter.

    With int8 the weights have 8 bits and a scale for each channel.
    """
    with tempfile.TemporaryDirectory() as saved_model:
        source.save(saved_model)
        converter = tf.lite.TFLiteConverter.from_saved_model(
            saved_model, signature_keys=list(source.signatures)
        )
        if source.dtype == INT8:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        content = converter.convert()
    with files.open_file(os.path.join(folder, LiteRtRuntime.FILE), "wb") as file:
        file.write(content)
    return f"tf.lite {tf.__version__}"


def _to_onnx(source: ConversionSource, folder: str) -> str:
    """Writes model.onnx, and <signature>.onnx of each further signature.

    Returns the versions of the writer and of its package.
    """
    task, model = source.built.task, source.built.model
    position_outputs = task.further_signatures(model)
    outputs_by_signature = {
        DEFAULT: functools.partial(task.serving_outputs, model),
        **task.feature_signatures(model),
        **position_outputs,
    }
    for signature in source.signatures:
        names = ENCODER_INPUTS
        if signature in position_outputs:
            names = (*ENCODER_INPUTS, MASKED_LM_POSITIONS)
        metadata = {
            "signature": signature,
            "task_name": source.built.task_name,
            "dtype": source.dtype,
            "labels": json.dumps([str(label) for label in task.labels or ()]),
        }
        content = onnx_writer.write_signature(
            outputs_by_signature[signature],
            onnx_writer.list_inputs(names, task.num_choices),
            source.dtype,
            metadata,
        )
        file_name = OnnxRuntime.FILE if signature == DEFAULT else f"{signature}.onnx"
        with files.open_file(os.path.join(folder, file_name), "wb") as file:
            file.write(content)
    return f"official_bert {__version__} onnx {metadata_version('onnx')}"


# Format -> a function that converts, and the packages of the extra `runtimes` that the conversion
# and the runtime need.
CONVERTERS = {
    ONNX: (_to_onnx, ("onnx", "onnxruntime")),
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
    """Check that a format can store a model.

    Args:
        export_format: a key of `CONVERTERS`.
        config: the configuration of the model.

    Raises:
        InputError: the format cannot.
    """
    if export_format == ONNX:
        onnx_encoder.check_activation(config.hidden_act)


def convert(source: ConversionSource, folder: str, formats: Sequence[str]) -> dict[str, Any]:
    """Write the files of formats.

    Args:
        source: the model and its signatures.
        folder: the folder of the files.
        formats: keys of `CONVERTERS`.

    Returns:
        The fields of the files for the record of the export.

    Raises:
        InputError: a signature cannot be converted.
    """
    versions = {}
    for name in formats:
        logging.info("Converting to %s in %s ...", name, source.dtype)
        write_format, _ = CONVERTERS[name]
        versions[name] = write_format(source, folder)
    digests = {}
    for name in sorted(os.listdir(folder)):
        digests[name] = files.sha256(os.path.join(folder, name))
    return {
        "converters": versions,
        "dtype": source.dtype,
        "signatures": list(source.signatures),
        "sha256": digests,
    }
