"""Converts a model into files of other runtimes, and checks the flags of such an export.

Input: a model and the names of its signatures. Output: the files of formats in a folder, with
weights of 32, 16 or 8 bits. The extensions that describe a format convert it. This module loads no
TensorFlow.
"""

import importlib.util
import os
from collections.abc import Sequence
from typing import Any

from absl import logging

from official_bert import catalog
from official_bert.config import BertConfig
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.options.serving import SAVED_MODEL
from official_bert.options.shared import BFLOAT16, FLOAT32
from official_bert.serving.export_format import ConversionSource, export_formats


def check_dtype(dtype: str, formats: Sequence[str]) -> None:
    """Check that formats can have a type of weights.

    Args:
        dtype: the value of --dtype.
        formats: names of `export_formats`, and `saved_model`.

    Raises:
        InputError: one of the formats cannot have it.
    """
    if dtype == FLOAT32:
        return
    if dtype == BFLOAT16:
        if list(formats) != [SAVED_MODEL]:
            raise InputError("--dtype=bfloat16: is for SavedModels; give float32 or int8")
        return
    names = [name for name, one in export_formats().items() if dtype in one.dtypes]
    remedies = [*(f"--export_format={name}" for name in names), "another --dtype"]
    for name in formats:
        if name not in names:
            raise InputError(
                f"--dtype={dtype}: {name} files cannot have it; give {' or '.join(remedies)}"
            )


def check_text_format(formats: Sequence[str]) -> None:
    """Check that the signatures of an export in other formats than a SavedModel can read texts.

    Args:
        formats: the names of its formats.

    Raises:
        InputError: the formats are several, or the format has signatures of tensors alone.
    """
    names = [name for name, one in export_formats().items() if one.reads_text]
    texts = " or ".join(f"--export_format={name}" for name in [SAVED_MODEL, *names])
    if len(formats) > 1:
        raise InputError(
            f"--export_text: --export_format={','.join(formats)} has several formats, whose files "
            f"read tensors; give {texts}"
        )
    if formats[0] not in names:
        raise InputError(
            f"--export_text: --export_format={formats[0]} has signatures of tensors alone; leave "
            f"it out, or give {texts}"
        )


def check_packages(export_format: str) -> None:
    """Check that the packages for a format are installed, before a model is built.

    Args:
        export_format: a name of `export_formats`.

    Raises:
        InputError: a package is not installed.
    """
    needed = export_formats()[export_format]
    for package in needed.packages:
        if importlib.util.find_spec(package) is None:
            raise InputError(
                f"{package}: is not installed; pip install 'official-bert[{needed.extra}]'"
            )


def list_calibrated(dtype: str, formats: Sequence[str]) -> list[str]:
    """Return the formats whose converter needs examples for a type of weights.

    Args:
        dtype: the value of --dtype.
        formats: names of `export_formats`, and `saved_model`.
    """
    calibrated = [name for name, one in export_formats().items() if dtype in one.calibrated_dtypes]
    return [name for name in formats if name in calibrated]


def check_model(export_format: str, config: BertConfig) -> None:
    """Check that a format can store a model.

    Args:
        export_format: a name of `export_formats`.
        config: the configuration of the model.

    Raises:
        InputError: the format cannot.
    """
    check = export_formats()[export_format].model_check
    if check:
        catalog.load(check)(config)


def convert(source: ConversionSource, folder: str, formats: Sequence[str]) -> dict[str, Any]:
    """Write the files of formats.

    Args:
        source: the model and its signatures.
        folder: the folder of the files.
        formats: names of `export_formats`.

    Returns:
        The fields of the files for the record of the export.

    Raises:
        InputError: a signature cannot be converted.
    """
    versions = {}
    for name in formats:
        logging.info("Converting to %s in %s ...", name, source.dtype)
        write_format = catalog.load(export_formats()[name].converter)
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
