"""Compares models in all formats and types: the runner of official-bert compare.

In: trained models of one task, and its development set. Out: exports, and a row, a line of a table
and a point of a picture for each.
"""

from __future__ import annotations

import datetime
import functools
import os

from absl import logging

from official_bert import catalog
from official_bert.checkpoints import named_variables
from official_bert.extensions.compare import measuring, results
from official_bert.extensions.compare.options import CompareOptions, check_paths
from official_bert.extensions.compare.points import Point, list_points, make_export_options
from official_bert.features import content_digest
from official_bert.io import errors, files
from official_bert.io.errors import InputError
from official_bert.io.processor import processor_name
from official_bert.options.serving import SAVED_MODEL
from official_bert.serving import model as serving_model
from official_bert.serving.dev_metric import DevMetric
from official_bert.serving.export import compute_weights_digest
from official_bert.serving.exported_model import DEFAULT, OpenedExport, is_export, set_threads
from official_bert.tasks.base import DataFiles

_FLAGS = "--dev_file, --data_dir"


def run(options: CompareOptions) -> list[results.Row]:
    """Measure all points, and write the results.

    Args:
        options: the flags of the command.

    Returns:
        The rows, as they are in the file.

    Raises:
        InputError: a model or the development set cannot be used, or no point can be measured.
    """
    check_paths(options)
    points = list_points(options)
    set_threads(options.num_threads)
    earlier_rows = results.read_rows(options.output_dir)
    rows: list[results.Row] = []
    exports: dict[str, measuring.TimedExport] = {}
    for model in dict.fromkeys(point.model for point in points):
        measurer = _ModelMeasurer(options, model, earlier_rows)
        files.make_folder(options.output_dir)
        measurer.check_same_metric(rows)
        for point in points:
            row = measurer.measure(point) if point.model == model else None
            if row is not None:
                rows.append(row)
                exports[point.name] = measurer.open(point)
    if not rows:
        raise InputError("--model: no format can store these models; the log says why")

    logging.info("Measuring the times of %d exports in turns ...", len(exports))
    times = measuring.measure_times(exports, options.num_rounds)
    facts = _list_facts(options, rows)
    for row in rows:
        row.update(times[row["name"]]._asdict())
        row["processor"] = facts["processor"]
    results.mark_front(rows)
    table = results.write_results(options.output_dir, rows, earlier_rows, facts)
    print(table)
    logging.info("Wrote %s", os.path.join(options.output_dir, results.TABLE_FILE))
    return rows


def _list_facts(options: CompareOptions, rows: list[results.Row]) -> dict[str, str]:
    """Returns what the table says about the measurement."""
    num_processors = os.cpu_count() or 1
    num_threads = options.num_threads or num_processors
    return {
        "processor": f"{processor_name()}, {num_threads} of {num_processors} processors",
        "date": datetime.date.today().isoformat(),
        "development set": f"{options.dev_file or options.data_dir}, {rows[0]['num_examples']} "
        "examples",
        "times": f"the median of {options.num_rounds} rounds, in which the exports are measured in "
        "turns; a text alone, and batches of 32; without the tokenizer",
    }


class _ModelMeasurer:
    """Exports one model in all formats, and measures the quality of the exports."""

    def __init__(self, options: CompareOptions, model: str, earlier_rows: list[results.Row]):
        """Builds the model and reads the development set.

        Args:
            options: the flags of the command.
            model: the folder of the model.
            earlier_rows: the rows of an earlier run.
        """
        self._options = options
        self._earlier_rows = earlier_rows
        self._versions: dict[str, str] = {}
        options_class = catalog.options_class("export_saved_model")
        built = serving_model.build(options_class(model=model, export_dir=""))
        data_files = DataFiles(options.data_dir, {"dev": options.dev_file})
        self._metric = DevMetric(built, data_files, _FLAGS)
        encoded = self._metric.encoded
        if not len(encoded.lengths):
            raise InputError(f"{_FLAGS}: the development set has no examples; give another one")
        self._batches = measuring.make_batches(encoded, built.max_seq_length)
        weights = {name: variable.value for name, variable in named_variables(built.model).items()}
        # A row of an earlier run counts if these values are the same.
        self._identity = {
            "model": model,
            "metric": self._metric.name,
            "num_examples": len(encoded.lengths),
            "weights_sha256": compute_weights_digest(weights),
            "dev_set_sha256": content_digest(encoded),
        }

    def check_same_metric(self, rows: list[results.Row]) -> None:
        """Check that other models have the same metric.

        Args:
            rows: the rows of the other models.

        Raises:
            InputError: a row has another metric.
        """
        for row in rows:
            if row["metric"] != self._metric.name:
                raise InputError(
                    f"--model: {row['model']} is measured by {row['metric']}, and "
                    f"{self._identity['model']} by {self._metric.name}; give models of one task"
                )

    def measure(self, point: Point) -> results.Row | None:
        """Export a point, measure its quality and size, and write its row.

        Args:
            point: the point.

        Returns:
            The row; None if the format cannot store the model, or the runtime cannot answer.
        """
        output_dir = self._options.output_dir
        for row in self._earlier_rows:
            is_same = row.get("name") == point.name and self._identity.items() <= row.items()
            if is_same and is_export(point.export_dir(output_dir)):
                logging.info("%s: was measured by an earlier run", point.name)
                return row
        logging.info("%s: exporting and measuring ...", point.name)
        try:
            version = self._export(point)
            export = self._open(version, point)
            quality = self._metric.measure_export(functools.partial(export, DEFAULT))
        except InputError as error:
            errors.warn("%s: is not compared (%s)", point.name, error)
            return None
        row = {
            "name": point.name,
            **self._identity,
            "export_format": point.export_format,
            "dtype": point.dtype,
            "runtime": point.runtime,
            "quality": quality,
            "megabytes": measuring.measure_megabytes(version),
            "command": point.format_command(self._options),
        }
        results.append_row(output_dir, row)
        return row

    def open(self, point: Point) -> measuring.TimedExport:
        """Open the export of a point.

        Args:
            point: a point with a row.

        Returns:
            The export, and the inputs by which it is timed.
        """
        folder = point.export_dir(self._options.output_dir)
        return measuring.TimedExport(self._open(folder, point), self._batches)

    def _export(self, point: Point) -> str:
        """Returns the folder of the export of a point. Points with other runtimes share it."""
        if point.export_name not in self._versions:
            options = make_export_options(point, self._options)
            self._versions[point.export_name] = serving_model.export(options)
        return self._versions[point.export_name]

    def _open(self, folder: str, point: Point) -> OpenedExport:
        settings = {} if point.export_format == SAVED_MODEL else {"runtime": point.runtime}
        return OpenedExport(folder, self._options.num_threads, settings=settings)
