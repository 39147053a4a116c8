"""Writes exports in the formats of --export_format; rejects those that 8 bits change too much."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

from official_bert import catalog
from official_bert.extensions.runtimes import converters, quality
from official_bert.extensions.runtimes.options import FLOAT16, INT8, LITERT, ONNX, FormatOptions
from official_bert.extensions.runtimes.runtimes import RUNTIMES
from official_bert.io.errors import InputError
from official_bert.options.serving import SAVED_MODEL, ExportOptions
from official_bert.options.shared import BFLOAT16, FLOAT32
from official_bert.serving.export import ConvertedModel, ExportWriter, TrainedModel
from official_bert.serving.exported_model import DEFAULT


class FormatWriter(ExportWriter):
    """Writes the files of the formats that the options name."""

    def __init__(self, options: ExportOptions):
        super().__init__(options)
        self._flags = catalog.options_part(options, FormatOptions)
        formats = self._flags.export_format or [SAVED_MODEL]
        _check_flags(options, self._flags, formats)
        self._converted_formats = [name for name in formats if name != SAVED_MODEL]
        for name in self._converted_formats:
            converters.check_packages(name)
        quality.check_flags(self._flags)
        self.keeps_saved_model = SAVED_MODEL in formats

    @property
    def dtype(self) -> str:
        """The type in which the weights of the model are stored before the conversion."""
        return BFLOAT16 if self._flags.dtype == BFLOAT16 else FLOAT32

    def formats(self, flags: Mapping[str, Any]) -> list[str]:
        """Return the names of the formats of an export.

        Args:
            flags: the flags of the export, by name.

        Returns:
            The formats of --export_format, by default a SavedModel.
        """
        return flags.get("export_format") or [SAVED_MODEL]

    def check_model(self, built: TrainedModel) -> None:
        """Check that the formats of the export can store a model.

        Args:
            built: the model.

        Raises:
            InputError: the runtime of a format cannot compute it.
        """
        for name in self._converted_formats:
            converters.check_model(name, built.config)

    def convert(
        self, built: TrainedModel, save: Callable[[str], None], folder: str
    ) -> ConvertedModel | None:
        """Make the files of the formats, and measure their loss with --max_loss.

        Args:
            built: the model.
            save: saves the SavedModel in a folder.
            folder: a temporary folder.

        Returns:
            The files, or None for a SavedModel alone.

        Raises:
            InputError: a file cannot be converted, or a format lost more than --max_loss.
        """
        if not self._converted_formats:
            return None
        flags = self._flags
        dev_set = None
        if flags.max_loss is not None:
            dev_set = quality.read_dev_set(built, flags, flags.max_loss)
        converted = os.path.join(folder, "converted")
        os.mkdir(converted)
        task, model = built.task, built.model
        further_signatures = [*task.feature_signatures(model), *task.further_signatures(model)]
        signatures = [DEFAULT, *further_signatures]
        source = converters.ConversionSource(built, save, signatures, flags.dtype)
        record = converters.convert(source, converted, self._converted_formats)
        metrics = None
        if dev_set is not None:
            runs = {}
            for name in self._converted_formats:
                runtime = RUNTIMES[name](converted)
                runs[name] = functools.partial(runtime, DEFAULT)
            metrics = quality.check_loss(built, flags.dtype, runs, dev_set)
        return ConvertedModel(converted, record | {"metrics": metrics}, signatures)


def _check_flags(options: ExportOptions, flags: FormatOptions, formats: list[str]):
    """Rejects flags that do not go together."""
    is_int8 = flags.dtype == INT8
    is_converted = formats != [SAVED_MODEL]
    tensors = f"--export_format={','.join(formats)} has signatures of tensors alone; leave it out"
    if is_converted and options.export_text:
        raise InputError(f"--export_text: {tensors}")
    if is_converted and options.estimator_signatures:
        raise InputError(f"--estimator_signatures: {tensors}")
    if is_converted and flags.dtype == BFLOAT16:
        raise InputError("--dtype=bfloat16: is for SavedModels; give float32 or int8")
    if flags.dtype == FLOAT16 and formats != [ONNX]:
        raise InputError(f"--dtype=float16: is for ONNX alone; --export_format={ONNX}")
    if is_int8 and SAVED_MODEL in formats:
        raise InputError(f"--dtype=int8: is no SavedModel's; --export_format={LITERT} or {ONNX}")
    if flags.max_loss is not None and not is_int8:
        raise InputError("--max_loss: measures what 8 bits cost; give --dtype=int8, too")
    if flags.max_loss is None and (flags.dev_file or flags.data_dir):
        raise InputError(
            "--dev_file, --data_dir: are read to measure what 8 bits cost; give --max_loss, too"
        )
