"""Converts a SavedModel of tensors into a file of another runtime, and weights to 8 bits, by the runtimes' own tools.

In: the folder of a SavedModel and the names of its signatures. Out: the files of `CONVERTERS`' formats in a folder.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from absl import logging

from official_bert.exported_model import RUNTIMES, import_runtime
from official_bert.io import files
from official_bert.options.serving import INT8, LITERT


class Converted(NamedTuple):
    """What the record of an export says of a conversion: the tool and its version, and the files' SHA-256 digests."""

    converter: str
    sha256: dict[str, str]


def _to_litert(saved_model: str, folder: str, signatures: Sequence[str], dtype: str) -> str:
    """Writes model.tflite with all signatures; with int8 the weights have 8 bits and a scale for each channel."""
    converter = tf.lite.TFLiteConverter.from_saved_model(saved_model, signature_keys=list(signatures))
    if dtype == INT8:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    with files.open_file(os.path.join(folder, RUNTIMES[LITERT].FILE), "wb") as file:
        file.write(converter.convert())
    return f"tf.lite {tf.__version__}"


# Format -> a function that converts, and the packages of requirements-runtimes.txt that it and the runtime need.
CONVERTERS = {LITERT: (_to_litert, ("ai_edge_litert.interpreter",))}


def import_packages(export_format: str):
    """Raises InputError if a package for the format is not installed, before a model is built."""
    for package in CONVERTERS[export_format][1]:
        import_runtime(package)


def convert(saved_model: str, folder: str, export_format: str, dtype: str, signatures: Sequence[str]) -> Converted:
    """Writes the files of a format into `folder`."""
    logging.info("Converting to %s in %s ...", export_format, dtype)
    converter = CONVERTERS[export_format][0](saved_model, folder, signatures, dtype)
    names = sorted(os.listdir(folder))
    return Converted(converter, {name: files.sha256(os.path.join(folder, name)) for name in names})
