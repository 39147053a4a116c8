"""Describes a format of exports that is not a SavedModel, and imports its optional packages.

Extensions add formats by the hook `export_formats`. This module loads no TensorFlow, because the
flags of commands list the formats.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from official_bert import catalog
from official_bert.io.errors import InputError, brief
from official_bert.options.shared import FLOAT16, FLOAT32, INT8, INT8_WEIGHTS

if TYPE_CHECKING:
    from official_bert.features import EncodedSet
    from official_bert.serving.export import TrainedModel


EXPORT_DTYPES = (FLOAT32, FLOAT16, INT8, INT8_WEIGHTS)


class ConversionSource(NamedTuple):
    """What a converter reads.

    Attributes:
        built: the model.
        save: saves the SavedModel in a folder.
        signatures: the names of the signatures to convert.
        dtype: the type of the weights: one of EXPORT_DTYPES.
        reads_text: whether the signatures read texts in place of token ids.
        calibration: the examples for a type of the `calibrated_dtypes` of the format; None for
            other types.
    """

    built: TrainedModel
    save: Callable[[str], None]
    signatures: Sequence[str]
    dtype: str
    reads_text: bool = False
    calibration: EncodedSet | None = None


class ExportFormat(NamedTuple):
    """A format of exports.

    Attributes:
        name: its name in --export_format.
        runtime: the name in --runtime of the main one of its runtimes, which the hook
            `format_runtimes` adds.
        file: the name of the file of `serving_default`.
        packages: the modules that the converter and the runtime need.
        dtypes: the types of weights that it can have.
        converter: `module:name` of a function of a ConversionSource and of a folder, in which it
            writes the files. It returns the versions of the converter.
        model_check: `module:name` of a function of a BertConfig that raises InputError if the
            format cannot store such a model; "" if it can store all.
        reads_text: whether its signatures may read texts.
        extra: the extra of official-bert that installs the packages.
        calibrated_dtypes: the types for which the converter measures the ranges of activations, so
            that it needs examples.
        data_suffix: the suffix of files that the runtime reads beside those of the suffix of
            `file`; "" if there are none.
    """

    name: str
    runtime: str
    file: str
    packages: tuple[str, ...]
    dtypes: tuple[str, ...]
    converter: str
    model_check: str = ""
    reads_text: bool = False
    extra: str = "runtimes"
    calibrated_dtypes: tuple[str, ...] = ()
    data_suffix: str = ""


class FormatRuntime(NamedTuple):
    """A runtime of the files of a format.

    Attributes:
        name: its name in --runtime. A runtime of several formats has an object for each.
        export_format: the name of the format.
        package: the module that it needs.
        runtime_class: `module:name` of a Runtime of serving/exported_model.py, which is called
            with the folder of the files and the number of threads.
        tried_dtypes: the types of weights with which it is tried without a choice, because it has
            the outputs of the others.
        is_main: whether it is the main one of the format, which `format_runtimes` finds out.
    """

    name: str
    export_format: str
    package: str
    runtime_class: str
    tried_dtypes: tuple[str, ...] = EXPORT_DTYPES
    is_main: bool = False


@functools.cache
def format_runtimes() -> Sequence[FormatRuntime]:
    """Returns the runtimes of all formats, the main ones first."""
    runtimes: list[FormatRuntime] = []
    for list_runtimes in catalog.hooks("format_runtimes"):
        for runtime in list_runtimes():
            export_format = export_formats().get(runtime.export_format)
            if export_format:
                is_main = export_format.runtime == runtime.name
                runtimes.append(runtime._replace(is_main=is_main))
    return sorted(runtimes, key=lambda runtime: not runtime.is_main)


@functools.cache
def export_formats() -> Mapping[str, ExportFormat]:
    """Returns the formats of all extensions by name."""
    formats = {}
    for list_formats in catalog.hooks("export_formats"):
        for export_format in list_formats():
            formats[export_format.name] = export_format
    return formats


class ConvertedRuntime:
    """The attributes of a `Runtime` whose files contain no labels and no sizes.

    Attributes:
        max_part_tokens: the maximum number of tokens that onnxruntime and LiteRT compute in one
            call; None for no limit.
    """

    errors: tuple[type[Exception], ...] = (Exception,)
    labels: list[str] | None = None
    num_outputs: int | None = None
    vocab_size: int | None = None
    max_part_tokens: int | None = None


class RuntimeMissingError(InputError):
    """A package of an extra that cannot be imported."""


def import_runtime(module: str, extra: str = "runtimes") -> Any:
    """Imports a package of an extra.

    Args:
        module: the name of a module.
        extra: the name of the extra.

    Raises:
        RuntimeMissingError: it cannot be imported; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise RuntimeMissingError(
            f"{package}: cannot be imported ({brief(error)}); pip install 'official-bert[{extra}]'"
        ) from error
