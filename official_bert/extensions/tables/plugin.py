"""Tables of predictions in a fine-tuning: --do_predict writes predictions.csv, or another format.

The table has all columns of the test table and those of the predictions, in the format of its first
file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from absl import logging

from official_bert import catalog
from official_bert.config import BertConfig
from official_bert.data.table_formats import JSON_LINES, PARQUET, choose_format
from official_bert.data.tables import Row
from official_bert.extensions.tables.answer_columns import choose_names, make_columns
from official_bert.extensions.tables.dev_split import SEED, split_examples
from official_bert.extensions.tables.options import PredictionTableOptions, SplitOptions
from official_bert.extensions.tables.table_writer import open_writer
from official_bert.fine_tuning.plugin import TrainingPlugin, TrainingRun
from official_bert.io import files, writing
from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import CSV
from official_bert.tasks.base import TrainableTask
from official_bert.tasks.classification.client import LIKELY
from official_bert.tasks.classification.task import ClassificationTask
from official_bert.tasks.classification.text import TextProcessor
from official_bert.tasks.clients import numbers

_STEM = "predictions"


class TablesPlugin(TrainingPlugin):
    """Writes the table of predictions of --task_name=text."""

    output_files: ClassVar[tuple[str, ...]] = (f"{_STEM}.*",)

    def __init__(self, options: Any, config: BertConfig, task: TrainableTask):
        self._options = options
        self._flags = catalog.options_part(options, PredictionTableOptions)
        self._dev_fraction = catalog.options_part(options, SplitOptions).dev_fraction
        self._split_metadata: dict[str, object] = {}
        self.splits_training_set = self._dev_fraction is not None
        if self.splits_training_set:
            self._refuse_dev_set()
        self._task = task if isinstance(task, ClassificationTask) else None
        self._processor = None
        if self._task is not None and isinstance(self._task.processor, TextProcessor):
            self._processor = self._task.processor
        if self._flags.all_probabilities and (self._processor is None or not options.do_predict):
            raise InputError(
                "--all_probabilities: only goes with --task_name=text and --do_predict; leave it "
                "out"
            )

    def _refuse_dev_set(self):
        """Raises InputError if there is a development set beside the flag."""
        options = self._options
        dev_files = [options.dev_file] if options.dev_file else []
        if options.data_dir and not dev_files:
            dev_files = files.matching("dev.*", options.data_dir)
        if dev_files:
            raise InputError(
                f"--dev_fraction={self._dev_fraction:g}: {dev_files[0]} is a development set; "
                "leave the flag out, or move the file away"
            )

    def split_training_set(self, examples: Any) -> tuple[Any, Any]:
        """Returns the examples to train on and those to evaluate on.

        Args:
            examples: the examples of the training file.
        """
        assert self._dev_fraction is not None, "the flag is there"
        split = split_examples(examples, self._dev_fraction)
        self._split_metadata = {
            "dev_split": {
                "fraction": self._dev_fraction,
                "seed": SEED,
                "num_train": split.num_train,
                "num_dev": split.num_dev,
            }
        }
        return split.train, split.dev

    def prepare(self, run: TrainingRun) -> Mapping[str, object]:
        """Returns the sizes of the parts of the training set for run.jsonl.

        Args:
            run: the training.
        """
        return self._split_metadata

    def add_predictions(
        self, output_dir: str, outputs: Mapping[str, np.ndarray], suffix: str
    ) -> None:
        """Writes the rows of the test table with the columns of the predictions.

        Args:
            output_dir: the folder of the prediction files.
            outputs: the outputs of the task for all examples of the set, each [n, ...].
            suffix: the ending of the names of the files.
        """
        processor = self._processor
        if processor is None or self._task is None:
            return
        rows = processor.read_rows(self._options.data_dir or "", "test")
        data_format = CSV
        if rows[0].path != "test":  # the name of a set in memory
            data_format = choose_format(rows[0].path, self._options.data_format)
        path = os.path.join(output_dir, f"{_STEM}{suffix}.{data_format}")
        writing.keep_apart([path], {"test_file": {row.path for row in rows}})
        names = [str(number) for number in range(len(rows[0].fields))]
        if processor.has_header or data_format in (JSON_LINES, PARQUET):
            names = rows[0].fields
            rows = rows[1:]
        records = self._make_records(names, rows, outputs)
        with (
            writing.replacing(path, "wb") as file,
            open_writer(
                file,
                path,
                data_format=data_format,
                is_quoted=self._options.quoting == CSV,
                has_header=processor.has_header,
            ) as writer,
        ):
            writer.write(records)
        logging.info("Wrote %s", path)

    def _make_records(
        self, names: Sequence[str], rows: Sequence[Row], outputs: Mapping[str, np.ndarray]
    ) -> list[dict[str, Any]]:
        """Returns the values of the table by column, for each row."""
        assert self._task is not None, "the caller has a task"
        answers = [
            make_columns(answer, self._flags.all_probabilities)
            for answer in make_answers(self._task, outputs)
        ]
        new_names = choose_names(answers[0], names, rows[0].path)
        records = []
        for row, answer in zip(rows, answers, strict=True):
            # The last columns of a row of TSV may be missing.
            fields = [*row.fields, *[""] * (len(names) - len(row.fields))]
            record = dict(zip(names, fields, strict=True))
            for column, value in answer.items():
                record[new_names[column]] = value
            records.append(record)
        return records


def make_answers(
    task: ClassificationTask, outputs: Mapping[str, np.ndarray]
) -> list[dict[str, Any]]:
    """Returns answers as those of a Predictor.

    Args:
        task: the task.
        outputs: the outputs of the task, each [n, ...].
    """
    if "score" in outputs:
        return [{"score": score} for score in numbers(outputs["score"])]
    labels = [str(label) for label in task.labels or ()]
    answers = []
    for row in outputs["probabilities"]:
        probabilities = dict(zip(labels, numbers(row), strict=True))
        answer: dict[str, Any] = {"probabilities": probabilities}
        if task.output_kind.has_one_label:
            best = int(row.argmax())
            is_answered = task.abstain_below is None or row[best] >= task.abstain_below
            answer = {"label": labels[best] if is_answered else None, **answer}
        else:
            chosen = [label for label, value in zip(labels, row, strict=True) if value > LIKELY]
            answer = {"labels": chosen, **answer}
        answers.append(answer)
    return answers
