"""The figures of a training as JSON lines, for plots and programs: output_dir/train_log.jsonl.

In: the scalars that TensorBoard gets. Out: a line for each progress line, {"step": 100, "loss": 6.5, ...}; a figure
that is not finite is null, as JSON has no nan.

A line is appended with one call, so a kill leaves whole lines, and so does a full disk. A run that starts again from an
older checkpoint first removes the lines of the steps that are lost.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping

from absl import logging

from official_bert import files, reading, writing
from official_bert.errors import InputError

FILE = "train_log.jsonl"


class TrainLog:
    """The file of a run."""

    def __init__(self, output_dir: str, first_step: int):
        """Opens the log of an earlier run, if there is one.

        Args:
            output_dir: the output folder of the run.
            first_step: updates that the weights have had; lines of later steps are removed.
        """
        self._path = os.path.join(output_dir, FILE)
        if files.exists(self._path):
            with writing.replacing(self._path) as file:
                for row in read_train_log(self._path):
                    if row["step"] <= first_step:
                        file.write(json.dumps(row) + "\n")

    def append(self, step: int, scalars: Mapping[str, float]):
        """Appends a line; a full disk costs the line and not the run."""
        numbers = {name: float(value) for name, value in scalars.items()}
        finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        line = json.dumps({"step": step} | finite)
        try:
            if files.is_remote(self._path):  # where nothing can be appended to a file
                writing.append_line(self._path, line)
            else:
                _append(self._path, line.encode() + b"\n")
        except (InputError, OSError) as error:
            logging.warning(
                "%s: the line of step %d is lost (%s); make room on the disk", self._path, step, error
            )


def _append(path: str, data: bytes):
    """Appends all of the data or, where the disk is full, nothing."""
    size = os.path.getsize(path) if os.path.exists(path) else 0
    try:
        with files.open_file(path, "ab") as file:
            file.write(data)
    except OSError:
        with contextlib.suppress(OSError):
            os.truncate(path, size)
        raise


def read_train_log(path: str) -> list[dict]:
    """Reads the lines of a log that are whole.

    Raises:
        InputError: there is no such file.
    """
    rows = []
    for line in reading.read_lines(path):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            rows.append(row)
    return rows
