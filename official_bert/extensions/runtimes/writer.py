"""Writes exports in the formats of --export_format; rejects those that 8 bits change too much."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

from official_bert import catalog
from official_bert.extensions.runtimes import mediapipe_file, quality
from official_bert.extensions.runtimes.formats import LITERT
from official_bert.extensions.runtimes.opening import RUNTIMES
from official_bert.extensions.runtimes.options import FormatOptions
from official_bert.graph_text.text_reader import InputBuilder
from official_bert.io.errors import InputError
from official_bert.options.serving import SAVED_MODEL, ExportOptions
from official_bert.options.shared import BFLOAT16, FLOAT32, INT8, INT8_WEIGHTS
from official_bert.serving import conversion
from official_bert.serving.export import ConvertedModel, ExportWriter, TrainedModel
from official_bert.serving.export_format import ConversionSource
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
            conversion.check_packages(name)
        self._calibrated_formats = conversion.list_calibrated(self._flags.dtype, formats)
        quality.check_flags(self._flags, self._calibrated_formats)
        self._text_task: mediapipe_file.TextTask | None = None
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
            InputError: the runtime of a format cannot compute it, or MediaPipe cannot.
        """
        for name in self._converted_formats:
            conversion.check_model(name, built.config)
        if self._flags.mediapipe:
            self._text_task = mediapipe_file.make_text_task(built)

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
        dev_metric = None
        if flags.max_loss is not None or self._calibrated_formats:
            dev_metric = quality.read_dev_metric(built, flags)
        converted = os.path.join(folder, "converted")
        os.mkdir(converted)
        reads_text: bool = self._options.export_text
        signatures = _list_signatures(built, reads_text)
        source = ConversionSource(
            built=built,
            save=save,
            signatures=signatures,
            dtype=flags.dtype,
            reads_text=reads_text,
            calibration=dev_metric.encoded if dev_metric and self._calibrated_formats else None,
        )
        record = conversion.convert(source, converted, self._converted_formats)
        metrics = None
        if dev_metric and flags.max_loss is not None:
            runs = {}
            for name in self._converted_formats:
                runtime = RUNTIMES[name](converted, None)
                runs[name] = functools.partial(runtime, DEFAULT)
            metrics = quality.check_loss(flags.dtype, runs, dev_metric, flags.max_loss)
        record["metrics"] = metrics
        if self._text_task:
            record["mediapipe"] = mediapipe_file.write_text_task(
                self._text_task, flags.dtype, converted
            )
        return ConvertedModel(converted, record, signatures)


def _list_signatures(built: TrainedModel, reads_text: bool) -> list[str]:
    """Returns the names of the signatures of converted files."""
    task, model = built.task, built.model
    if not reads_text:
        return [DEFAULT, *task.feature_signatures(model), *task.further_signatures(model)]
    # The names depend on whether there is a reader, and not on the reader.
    reader: Any = InputBuilder(built.tokenizer.vocab, built.max_seq_length)
    return [DEFAULT, *task.further_signatures(model, reader)]


def _check_flags(options: ExportOptions, flags: FormatOptions, formats: list[str]):
    """Rejects flags that do not go together."""
    is_converted = formats != [SAVED_MODEL]
    tensors = f"--export_format={','.join(formats)} has signatures of tensors alone; leave it out"
    if is_converted and options.estimator_signatures:
        raise InputError(f"--estimator_signatures: {tensors}")
    if is_converted and options.export_text:
        _check_text_flags(flags, formats)
    if flags.mediapipe and LITERT not in formats:
        raise InputError("--mediapipe: is for LiteRT files; give --export_format=litert, too")
    conversion.check_dtype(flags.dtype, formats)
    if flags.max_loss is not None and flags.dtype not in (INT8, INT8_WEIGHTS):
        raise InputError("--max_loss: measures what 8 bits cost; give --dtype=int8 or int8_weights")
    reads_dev_set = flags.max_loss is not None or conversion.list_calibrated(flags.dtype, formats)
    if not reads_dev_set and (flags.dev_file or flags.data_dir):
        raise InputError(
            "--dev_file, --data_dir: are read to measure what 8 bits cost; give --max_loss, too"
        )


def _check_text_flags(flags: FormatOptions, formats: list[str]):
    """Rejects --export_text with formats and flags that are for tensors alone."""
    conversion.check_text_format(formats)
    if flags.max_loss is not None:
        raise InputError(
            "--max_loss: is measured on exports that read tensors; export the model once with it "
            "and without --export_text, and then with --export_text alone"
        )
