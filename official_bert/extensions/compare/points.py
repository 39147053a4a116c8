"""The points of a comparison: a model in a format, with weights of a type, and its runtime."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import os
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from absl import logging

from official_bert import catalog
from official_bert.extensions.compare.options import CompareOptions
from official_bert.io.errors import InputError
from official_bert.options.serving import SAVED_MODEL
from official_bert.options.shared import BFLOAT16, FLOAT32
from official_bert.serving import conversion
from official_bert.serving.export_format import export_formats, format_runtimes

_COMMAND = "export_saved_model"


class Point(NamedTuple):
    """A model in a format, with weights of a type, and what computes it.

    Attributes:
        model: the folder of the model.
        export_format: a value of --export_format.
        dtype: a value of --dtype.
        runtime: a value of --runtime of official-bert predict.
        is_main_runtime: whether it is the runtime of the format, and not a further one.
    """

    model: str
    export_format: str
    dtype: str
    runtime: str = "tensorflow"
    is_main_runtime: bool = True

    @property
    def model_name(self) -> str:
        """The last part of the path of the model."""
        return os.path.basename(os.path.normpath(self.model))

    @property
    def name(self) -> str:
        """The name of the point in tables and pictures."""
        return self.export_name if self.is_main_runtime else f"{self.export_name} {self.runtime}"

    @property
    def export_name(self) -> str:
        """The name of the export, which several runtimes may share."""
        return f"{self.model_name} {self.export_format} {self.dtype}"

    def export_dir(self, output_dir: str) -> str:
        """Return the folder of the versions of the export.

        Args:
            output_dir: the folder of the comparison.
        """
        digest = hashlib.sha256(os.path.abspath(self.model).encode()).hexdigest()[:8]
        return os.path.join(output_dir, "exports", f"{self.export_name.replace(' ', '-')}-{digest}")

    def export_flags(self, options: CompareOptions) -> dict[str, Any]:
        """Return the flags of export_saved_model that make the export.

        Args:
            options: the flags of the comparison.
        """
        flags: dict[str, Any] = {
            "model": self.model,
            "export_dir": self.export_dir(options.output_dir),
            "dtype": self.dtype,
        }
        if self.export_format != SAVED_MODEL:
            flags["export_format"] = [self.export_format]
        if conversion.list_calibrated(self.dtype, [self.export_format]):
            paths = {"dev_file": options.dev_file, "data_dir": options.data_dir}
            flags.update({name: path for name, path in paths.items() if path})
        return flags

    def format_command(self, options: CompareOptions) -> str:
        """Return the command line that makes the export.

        Args:
            options: the flags of the comparison.
        """
        words = ["official-bert", _COMMAND]
        for name, value in self.export_flags(options).items():
            text = ",".join(value) if isinstance(value, list) else value
            words.append(f"--{name}={text}")
        return shlex.join(words)


def make_export_options(point: Point, options: CompareOptions) -> Any:
    """Return the options of export_saved_model that make the export of a point.

    Args:
        point: the point.
        options: the flags of the comparison.
    """
    return catalog.options_class(_COMMAND)(**point.export_flags(options))


def list_points(options: CompareOptions) -> list[Point]:
    """List the points that the flags choose.

    Args:
        options: the flags of the command.

    Returns:
        The points, those of a model together.

    Raises:
        InputError: a format or a type is unknown, or no point is left.
    """
    dtypes_by_format = _list_dtypes()
    _check_names("--export_format", options.export_format, [*dtypes_by_format])
    known_dtypes = dict.fromkeys(name for names in dtypes_by_format.values() for name in names)
    _check_names("--dtype", options.dtype, [*known_dtypes])
    points = []
    for model in dict.fromkeys(options.model):
        for export_format, dtypes in dtypes_by_format.items():
            if options.export_format and export_format not in options.export_format:
                continue
            for dtype in dtypes:
                if not options.dtype or dtype in options.dtype:
                    points += _list_runtime_points(Point(model, export_format, dtype))
    models_by_name = {point.name: point.model for point in points}
    for point in points:
        if models_by_name[point.name] != point.model:
            raise InputError(
                f"--model: two folders are called {point.model_name}, and the results name a model "
                "by its folder; rename one of them"
            )
    if not points:
        raise InputError(
            "--export_format, --dtype: no format with these types is installed; give others, or "
            "leave them out"
        )
    return points


def _list_runtime_points(point: Point) -> list[Point]:
    """Returns a point of a format with each installed runtime of the format."""
    if point.export_format == SAVED_MODEL:
        return [point]
    points = []
    for runtime in format_runtimes():
        is_installed = importlib.util.find_spec(runtime.package) is not None
        is_tried = is_installed and point.dtype in runtime.tried_dtypes
        if is_tried and runtime.export_format == point.export_format:
            points.append(point._replace(runtime=runtime.name, is_main_runtime=runtime.is_main))
    return points


def _list_dtypes() -> dict[str, tuple[str, ...]]:
    """Returns the types of weights of each format whose packages are installed."""
    dtypes_by_format: dict[str, tuple[str, ...]] = {SAVED_MODEL: (FLOAT32, BFLOAT16)}
    fields = dataclasses.fields(catalog.options_class(_COMMAND))
    if "export_format" not in {field.name for field in fields}:
        return dtypes_by_format
    for name, export_format in export_formats().items():
        missing = [one for one in export_format.packages if importlib.util.find_spec(one) is None]
        if missing:
            logging.info("%s: is not compared, because %s is not installed", name, missing[0])
            continue
        dtypes_by_format[name] = export_format.dtypes
    return dtypes_by_format


def _check_names(flag: str, names: Sequence[str] | None, known_names: Sequence[str]):
    for name in names or ():
        if name not in known_names:
            raise InputError(
                f"{flag}={','.join(names or ())}: {name} is not one of {', '.join(known_names)}; "
                "give one of them, or install its packages"
            )
