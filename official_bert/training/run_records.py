"""The records of the runs in a folder: output_dir/runs.jsonl, a line for each run.

In: the flags of a run and what it runs on. Out: the line; and for later runs what the earlier ones have left.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import keras
import numpy as np
import tensorflow as tf

from official_bert import __version__, files, reading, writing
from official_bert.errors import InputError

FILE = "runs.jsonl"


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
        output_dir: the output folder of the run.
        script: the name of the script.
        options: the dataclass of its flags.
        seed: the seed of the run, given or drawn.
        strategy: the distribution strategy of the run.
        num_updates: the number of updates that the run is to make; None if it is no training.
        facts: what else the run has found out.
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
    writing.append_line(os.path.join(output_dir, FILE), json.dumps(record | dict(facts)))


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
    return [row for row in rows(os.path.join(output_dir, FILE)) if row.get("num_updates")]


def changed_flags(before: Mapping, now: Mapping, names: Iterable[str]) -> str:
    """Returns the flags in which two runs differ, as in "--learning_rate=0.1 (0.2 before)"; "" if there are none.

    Args:
        before: the flags of the earlier run; a flag that this one did not know does not count.
        now: the flags of the later run.
        names: the flags to compare.
    """
    return ", ".join(
        f"--{name}={now[name]} ({before[name]} before)"
        for name in names
        if name in now and name in before and now[name] != before[name]
    )
