"""What a run tells people: progress lines, TensorBoard scalars, eval_results.txt and the record of the run.

Everything goes into `output_dir`; metrics come in as {name: number}, whatever the task.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import numbers
import os
import platform
import time
from collections.abc import Callable, Mapping

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from official_bert import __version__, files

_THRESHOLDS = ("_thresh", "_threshold")  # the ends of their names


class ProgressReporter:
    """One log line and one set of TensorBoard scalars a report.

        step 200/1000  loss 6.51  mlm_accuracy 0.08  ...  120.3 examples/s  00:12:33 left

    Speed and time left are those since the last report, pauses for checkpoints included. The first call into
    TensorFlow, which compiles, does not count where `watching` sees it; a report with nothing else to go by leaves
    both out.
    """

    def __init__(self, output_dir: str, num_train_steps: int, batch_size: int, first_step: int):
        """Starts the clock.

        Args:
            output_dir: where TensorBoard's events go.
            num_train_steps: updates in total.
            batch_size: examples in an update.
            first_step: updates made by earlier runs.
        """
        self._num_train_steps, self._batch_size = num_train_steps, batch_size
        self._writer = tf.summary.create_file_writer(output_dir)
        self._watched = False
        self._start_interval(first_step)

    def watching(self, run_steps: Callable) -> Callable:
        """Wraps `run_steps(batches, num_steps)`: the clock starts anew when its first call is over."""

        def watched(batches, num_steps):
            results = run_steps(batches, num_steps)
            if not self._watched:
                self._watched = True
                self._start_interval(self._since_step + num_steps)
            return results

        return watched

    def report(self, step: int, metrics: Mapping[str, float]):
        """Logs a line and writes the scalars.

        Args:
            step: updates made so far.
            metrics: over the steps since the last report, in the order of the line.
        """
        fields = [f"step {step}/{self._num_train_steps}"]
        fields += [f"{name} {value:.4g}" for name, value in metrics.items()]
        steps, secs = step - self._since_step, time.monotonic() - self._since_secs
        scalars = dict(metrics)
        if steps:
            scalars["examples_per_second"] = steps * self._batch_size / secs
            left_secs = round((self._num_train_steps - step) * secs / steps)
            fields += [f"{scalars['examples_per_second']:.1f} examples/s", f"{_hours(left_secs)} left"]
        logging.info("  ".join(fields))
        _write_scalars(self._writer, scalars, step)
        self._start_interval(step)

    def _start_interval(self, step: int):
        self._since_step, self._since_secs = step, time.monotonic()


def write_eval_results(output_dir: str, results: Mapping[str, float], step: int, suffix: str = ""):
    """Writes eval_results.txt as the original does, logs it, and gives TensorBoard the scalars under eval/.

    Args:
        output_dir: of the run.
        results: metrics by name; `global_step` is added.
        step: updates made so far.
        suffix: of a second set's names: "_mm" gives eval_results_mm.txt and eval_mm/.
    """
    numbers_by_name = sorted({**results, "global_step": step}.items())
    lines = [f"{name} = {_as_printed(name, value)}" for name, value in numbers_by_name]
    logging.info("***** Eval results *****")
    for line in lines:
        logging.info("  %s", line)
    with files.replacing(os.path.join(output_dir, f"eval_results{suffix}.txt")) as file:
        file.writelines(f"{line}\n" for line in lines)
    write_scalars(os.path.join(output_dir, f"eval{suffix}"), results, step)


def write_scalars(folder: str, scalars: Mapping[str, float], step: int):
    """Writes TensorBoard scalars of a step into a folder."""
    _write_scalars(tf.summary.create_file_writer(folder), scalars, step)


def write_run_record(output_dir: str, script: str, options, seed: int, strategy: tf.distribute.Strategy):
    """Adds what is needed to repeat the run to output_dir/runs.jsonl, one line a run.

    Args:
        output_dir: of the run.
        script: name of the script.
        options: dataclass of its flags.
        seed: of the run, given or drawn.
        strategy: that it runs on.
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
    }
    with files.open_file(os.path.join(output_dir, "runs.jsonl"), "a") as file:
        file.write(json.dumps(record) + "\n")


def package_versions() -> dict[str, str]:
    """Versions of what computes."""
    return {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "numpy": np.__version__,
        "official_bert": __version__,
    }


def _write_scalars(writer, scalars: Mapping[str, float], step: int):
    with writer.as_default(step=step):
        for name, value in scalars.items():
            tf.summary.scalar(name, value)
    writer.flush()


def _hours(secs: int) -> str:
    minutes, secs = divmod(secs, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{secs:02}"


def _as_printed(name: str, value) -> str:
    """Integers as they are, other numbers as float32, the original's metric type; but thresholds whole.

    A threshold is given back to a script, and is one of the odds that are compared with it: rounded, it would change
    sides.
    """
    if isinstance(value, numbers.Integral):
        return str(int(value))
    return repr(float(value)) if name.endswith(_THRESHOLDS) else str(np.float32(value))
