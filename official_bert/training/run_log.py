"""The records of a run: runs.jsonl, a line for each start, and train_log.jsonl, a line for each progress line."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import math
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from official_bert import __version__
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError

RUNS_FILE = "runs.jsonl"


def write_run_record(
    output_dir: str,
    script: str,
    options,
    seed: int,
    strategy: tf.distribute.Strategy,
    num_updates: int | None = None,
    facts: Mapping[str, object] = MappingProxyType({}),
):
    """Appends a line to output_dir/runs.jsonl that contains everything needed to repeat the run.

    Args:
        options: the dataclass of its flags.
        num_updates: the number of updates that the run is to make; None if it is no training.
    """
    record = {
        "script": script,
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "flags": dataclasses.asdict(options),
        "versions": package_versions(),
        "strategy": type(strategy).__name__,
        "num_replicas": strategy.num_replicas_in_sync,
        "devices": [device.name for device in tf.config.list_logical_devices()],
        "num_updates": num_updates,
    }
    writing.append_line(os.path.join(output_dir, RUNS_FILE), json.dumps(record | dict(facts)))


def package_versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that affect the numbers."""
    return {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "numpy": np.__version__,
        "official_bert": __version__,
    }


def rows(path: str) -> Iterator[dict]:
    """Yields the whole lines of a file of JSON objects, which need neither be there nor be readable.

    A killed run may have left half a line.
    """
    try:
        lines = list(reading.read_lines(path)) if files.exists(path) else []
    except (InputError, OSError):
        return
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def trainings(output_dir: str) -> list[dict]:
    """Returns the records of the runs that had updates to make, in their order."""
    return [row for row in rows(os.path.join(output_dir, RUNS_FILE)) if row.get("num_updates")]


def changed_flags(before: Mapping, now: Mapping, names: Iterable[str]) -> str:
    """Returns the flags in which two runs differ, as in "--learning_rate=0.1 (0.2 before)"; "" if there are none.

    Args:
        before: the flags of the earlier run; a flag that this one did not know does not count.
    """
    return ", ".join(
        f"--{name}={now[name]} ({before[name]} before)"
        for name in names
        if name in now and name in before and now[name] != before[name]
    )


TRAIN_LOG_FILE = "train_log.jsonl"


class TrainLog:
    """The file of a run."""

    def __init__(self, output_dir: str, first_step: int):
        """Opens the log of an earlier run, if there is one.

        Args:
            first_step: updates that the weights have had; lines of later steps are removed.
        """
        self._path = os.path.join(output_dir, TRAIN_LOG_FILE)
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
