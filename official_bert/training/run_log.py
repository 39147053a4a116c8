"""The log of a run, output_dir/run.jsonl: one JSON object in each line, with a `type`.

    start        a run began: its flags, versions, seed and devices, and `first_step`, the number of
                 updates of earlier runs
    train        a progress line: the metrics at a `step`
    evaluation   an evaluation: the metrics at a `step`. That of --do_eval, or of a scored
                 prediction, has a `set`, such as eval or eval_mm; one during training has none
    checkpoint   the `path` of a checkpoint that was saved at a `step`
    end          the summary of a training

Lines are only ever added. When a training starts at an earlier step than an earlier one had
reached, the lines of the steps after it belong to weights that are lost, and `read` leaves them
out.
"""

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
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.options.fields import flag_names, format_value
from official_bert.options.former_flags import upgrade_flags
from official_bert.version import __version__

if TYPE_CHECKING:
    import tensorflow as tf

FILE = "run.jsonl"
ROWS_DIGEST = "rows_sha256"  # the field of a start of Classifier.train: the digest of its data
TYPED_FLAGS = "typed_flags"  # the field of a start with the flags as the user typed them
_WEIGHTS_FLAG = "init_checkpoint"
START, TRAIN, EVALUATION, CHECKPOINT, END = "start", "train", "evaluation", "checkpoint", "end"
# The parts of the time of a training, in its summary: the first calls, which compile; the other
# updates; checkpoints, as far as the updates wait for them; evaluations.
COMPILE_SECS, UPDATE_SECS = "compile_secs", "update_secs"
SAVE_SECS, EVALUATION_SECS = "save_secs", "evaluation_secs"
READ_SECS = "read_secs"  # of the threads that make the batches during the updates


def write_start(
    output_dir: str,
    options: Any,
    seed: int | None,
    strategy: tf.distribute.Strategy,
    metadata: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Writes the line of a start, with everything needed to repeat the run.

    Args:
        output_dir: the folder of the file.
        options: the flags, an instance of an options class.
        seed: the seed of the run; None for a run without one.
        strategy: the devices.
        metadata: further values, such as `Trainer.run_metadata`.
    """
    import tensorflow as tf

    line = {
        "script": options.script,
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "flags": dataclasses.asdict(options),
        "versions": package_versions(),
        "strategy": type(strategy).__name__,
        "num_replicas": strategy.num_replicas_in_sync,
        "devices": [device.name for device in tf.config.list_logical_devices()],
        "num_updates": None,
    }
    write(output_dir, START, {**line, **metadata})


def package_versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that affect the numbers."""
    import keras
    import tensorflow as tf

    return {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "numpy": np.__version__,
        "official_bert": __version__,
    }


def write(output_dir: str, kind: str, values: Mapping[str, object]) -> None:
    """Adds a line; numbers that are not finite, which JSON does not have, become null.

    Args:
        output_dir: the folder of the file.
        kind: the type of the line.
        values: its values by name.
    """
    path = os.path.join(output_dir, FILE)
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }
    line = json.dumps({"type": kind} | finite)
    if files.is_remote(path):  # where nothing can be appended to a file
        writing.append_line(path, line)
        return
    with writing.saying_why(path):
        size = os.path.getsize(path) if os.path.exists(path) else 0
        with open(path, "ab+", buffering=0) as file:
            file.seek(max(0, size - 1))
            is_half = file.read(1) not in (b"", b"\n")  # a killed run left half a line
            data = b"\n" * is_half + line.encode() + b"\n"
            try:
                while data:
                    data = data[file.write(data) :]
            except OSError:  # all of the line or, where the disk is full, nothing
                with contextlib.suppress(OSError):
                    os.truncate(path, size)
                raise


def write_if_possible(output_dir: str, kind: str, values: Mapping[str, object]) -> None:
    """Adds a line; a full disk costs the line and not the run.

    Args:
        output_dir: the folder of the file.
        kind: the type of the line.
        values: its values by name.
    """
    try:
        write(output_dir, kind, values)
    except (InputError, OSError) as error:
        logging.warning("A line of the type %s is lost: %s", kind, error)


def read(output_dir: str, kind: str) -> list[dict]:
    """Returns the lines of a type, in their order.

    Lines of lost steps and corrupt lines are left out.

    Args:
        output_dir: the folder of the file.
        kind: the type of the lines.
    """
    lines = []
    for line in _lines(output_dir):
        is_training = line["type"] == START and line.get("num_updates")
        if is_training and "first_step" in line:
            first_step = line["first_step"]
            lines = [earlier for earlier in lines if earlier.get("step", 0) <= first_step]
        if line["type"] == kind and ("step" in line or kind in (START, END)):
            lines.append(line)
    return lines


def periodic_evaluations(output_dir: str) -> list[dict]:
    """Returns the lines of the evaluations during training, in their order.

    Args:
        output_dir: the folder of the run's log.
    """
    return [line for line in read(output_dir, EVALUATION) if "set" not in line]


def trainings(output_dir: str) -> list[dict]:
    """Returns the lines of the starts that had updates to make, in their order.

    Flags that an earlier version recorded have the names and the values of this one.

    Args:
        output_dir: the folder of the run's log.
    """
    lines = [line for line in read(output_dir, START) if line.get("num_updates")]
    for line in lines:
        if isinstance(line.get("flags"), dict):
            line["flags"] = upgrade_flags(line["flags"])
    return lines


def _lines(output_dir: str) -> Iterator[dict]:
    """Yields the valid lines of a folder's file; there are none if it cannot be read."""
    path = os.path.join(output_dir, FILE)
    try:
        lines = list(reading.read_lines(path)) if files.exists(path) else []
    except (InputError, OSError):
        return
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            if not isinstance(value, dict) or "type" not in value:
                continue
            if isinstance(value.get("step", 0), int):
                yield value


def changed_flags(
    before: Mapping, now: Mapping, *, names: Iterable[str], options_class: type
) -> str:
    """Returns the flags of both runs that differ, as "--learning_rate=0.1 (0.2 before)".

    Args:
        before: the flags of the earlier run by name.
        now: the flags of this run by name.
        names: the flags to compare.
        options_class: the class of the flags of this run, which declares the paths among them.
    """
    model_flags = set(flag_names(options_class, "names_model"))
    return ", ".join(
        f"--{name}={format_value(now[name])} ({format_value(before[name])} before)"
        for name in names
        if name in now
        and name in before
        and _differs(name, before[name], now[name], is_path=name in model_flags)
    )


def _differs(name: str, before: object, now: object, is_path: bool) -> bool:
    """Returns whether a flag has another value than before; a path is compared by its target."""
    if name == _WEIGHTS_FLAG and now is None:  # a run that resumes has its weights in its folder
        return False
    if is_path and isinstance(before, str) and isinstance(now, str):
        return files.real_path(before) != files.real_path(now)
    return before != now
