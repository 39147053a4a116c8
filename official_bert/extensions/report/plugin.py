"""Records what a report needs during a run, and writes the report at its end.

`eval_predictions.jsonl` has a line for each example of an evaluated set: `id`, its number from 1,
and the fields of `describe_predictions` in tasks/base.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from absl import logging

from official_bert import catalog
from official_bert.config import BertConfig
from official_bert.extensions.report.command import list_runs, write_report
from official_bert.extensions.report.options import ReportFlag
from official_bert.extensions.report.page import PAGE_FILE, PICTURES_FOLDER
from official_bert.features import EncodedSet, content_digest
from official_bert.fine_tuning.plugin import Evaluation, TrainingPlugin, TrainingRun
from official_bert.io import writing
from official_bert.io.errors import InputError
from official_bert.options.training import TrainingOptions
from official_bert.tasks.base import TrainableTask
from official_bert.training import run_log
from official_bert.training.run_record import PREDICTIONS_FILE, SET, TRAINING_SET

_NUM_BARS = 30  # of the histogram of lengths


class ReportPlugin(TrainingPlugin):
    """Records the sets of a run and the predictions of its evaluations."""

    output_files: ClassVar[tuple[str, ...]] = (
        PAGE_FILE,
        PICTURES_FOLDER,
        PREDICTIONS_FILE.format("*"),
    )

    def __init__(self, options: TrainingOptions, config: BertConfig, task: TrainableTask):
        """Reads the flag of the extension.

        Args:
            options: the flags of the run.
            config: the configuration of the model.
            task: the task.
        """
        self._is_wanted = catalog.options_part(options, ReportFlag).report
        self._max_seq_length = getattr(options, "max_seq_length", 0)

    def prepare(self, run: TrainingRun) -> Mapping[str, object]:
        """Return the main metric of the task and the size of the training set.

        Args:
            run: the training.
        """
        metadata: dict[str, object] = {"main_metric": getattr(run.task, "main_metric", "")}
        if hasattr(run.training_set, "lengths"):  # pre-training has record files
            metadata[TRAINING_SET] = describe_set(run.training_set, self._max_seq_length)
        return metadata

    def read_evaluation(self, evaluation: Evaluation) -> None:
        """Write eval_predictions.jsonl, and a line about the set into run.jsonl.

        Args:
            evaluation: the evaluated set.
        """
        try:
            write_predictions(evaluation)
        except (InputError, OSError) as error:  # a full disk costs the tables and not the run
            logging.warning("The report lacks predictions: %s", error)
        line = {
            "step": evaluation.step,
            "set": f"eval{evaluation.suffix}",
            "main_metric": evaluation.task.main_metric,
            **describe_set(evaluation.encoded, self._max_seq_length),
        }
        run_log.write_if_possible(evaluation.output_dir, SET, line)

    def end(self, output_dir: str) -> None:
        """Write the report with --report.

        Args:
            output_dir: the folder of the run.
        """
        self._write_report(output_dir, has_card=True)

    def end_search(self, output_dir: str) -> None:
        """Write the comparison of all runs with --report.

        Args:
            output_dir: the folder of the search.
        """
        self._write_report(output_dir, has_card=False)

    def _write_report(self, output_dir: str, has_card: bool):
        if not self._is_wanted:
            return
        try:
            write_report(list_runs(output_dir), os.path.join(output_dir, PAGE_FILE), has_card)
        except (InputError, OSError) as error:  # the run itself is complete
            logging.warning("No report is written: %s", error)


def describe_set(encoded: EncodedSet, max_seq_length: int) -> dict[str, Any]:
    """Returns the size, the digest and the lengths of a set, as JSON values.

    Args:
        encoded: the set.
        max_seq_length: the largest number of tokens of an example.
    """
    lengths = np.asarray(encoded.lengths)
    if not len(lengths):
        return {"examples": 0}
    width = -(-int(lengths.max()) // _NUM_BARS)
    bars = np.bincount((lengths - 1) // width)
    return {
        "examples": len(lengths),
        "digest": content_digest(encoded),
        "mean_tokens": round(float(lengths.mean()), 1),
        "most_tokens": int(lengths.max()),
        "full_examples": int(np.sum(lengths >= max_seq_length)),
        "bar_width": width,
        "bars": bars.tolist(),
    }


def write_predictions(evaluation: Evaluation) -> None:
    """Writes eval_predictions.jsonl, without lines for a task that describes no predictions.

    Args:
        evaluation: the evaluated set.
    """
    path = os.path.join(evaluation.output_dir, PREDICTIONS_FILE.format(evaluation.suffix))
    outputs = dict(evaluation.outputs)
    # A set without examples has no outputs.
    records = evaluation.task.describe_predictions(evaluation.encoded, outputs) if outputs else ()
    with writing.replacing(path) as file:
        for number, record in enumerate(records, start=1):
            line = json.dumps({"id": number, **record}, ensure_ascii=False)
            file.write(f"{line}\n")
