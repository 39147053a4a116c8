"""Writes exports in the formats of --export_format, and refuses those that 8 bits change too much."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

from official_bert import catalog
from official_bert.extensions.runtimes import converters, quality
from official_bert.extensions.runtimes.options import INT8, LITERT, ONNX, FormatOptions
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
        return FLOAT32 if self._flags.dtype == INT8 else self._flags.dtype

    def formats(self, flags: Mapping[str, Any]) -> list[str]:
        return flags.get("export_format") or [SAVED_MODEL]

    def check_model(self, built: TrainedModel):
        for name in self._converted_formats:
            converters.check_model(name, built.config)

    def convert(
        self, built: TrainedModel, save: Callable[[str], None], folder: str
    ) -> ConvertedModel | None:
        if not self._converted_formats:
            return None
        measures, metrics = self._flags.max_loss is not None, None
        encoded = quality.dev_set(built, self._flags) if measures else None
        saved_model = os.path.join(folder, "saved_model")
        converted = os.path.join(folder, "converted")
        save(saved_model)
        os.mkdir(converted)
        signatures = [DEFAULT, *built.task.further_signatures(built.model)]
        record = converters.convert(
            saved_model,
            converted,
            formats=self._converted_formats,
            dtype=self._flags.dtype,
            signatures=signatures,
        )
        if measures:
            runs = {
                name: functools.partial(RUNTIMES[name](converted), DEFAULT)
                for name in self._converted_formats
            }
            metrics = quality.check_loss(built, self._flags, runs, encoded)
        return ConvertedModel(converted, record | {"metrics": metrics}, signatures)


def _check_flags(options: ExportOptions, flags: FormatOptions, formats: list[str]):
    """Refuses flags that do not go together."""
    is_int8, is_converted = flags.dtype == INT8, formats != [SAVED_MODEL]
    tensors = f"--export_format={','.join(formats)} has signatures of tensors alone; leave it out"
    for is_wrong, message in (
        (is_converted and options.export_text, f"--export_text: {tensors}"),
        (is_converted and options.estimator_signatures, f"--estimator_signatures: {tensors}"),
        (
            is_converted and flags.dtype == BFLOAT16,
            "--dtype=bfloat16: is for SavedModels; give float32 or int8",
        ),
        (
            is_int8 and SAVED_MODEL in formats,
            f"--dtype=int8: is no SavedModel's; --export_format={LITERT} or {ONNX}",
        ),
        (
            flags.max_loss is not None and not is_int8,
            "--max_loss: measures what 8 bits cost; give --dtype=int8, too",
        ),
        (
            flags.max_loss is None and (flags.dev_file or flags.data_dir),
            "--dev_file, --data_dir: are read to measure what 8 bits cost; give --max_loss, too",
        ),
    ):
        if is_wrong:
            raise InputError(message)
