"""Traces some updates of a training with TensorFlow's profiler, for --profile_steps."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf
from absl import logging

FOLDER = "profile"  # in output_dir


class Profile:
    """The trace of some updates, as a context manager, which ends a trace that still runs.

    Attributes:
        stops: the numbers of updates before which a call into TensorFlow ends.
    """

    def __init__(self, steps: str | None, output_dir: str):
        """Starts no trace yet.

        Args:
            steps: the first and the last update, such as "10:15"; None for no trace.
            output_dir: the folder of the run.
        """
        self.stops: tuple[int, ...] = ()
        self._folder = os.path.join(output_dir, FOLDER)
        self._is_running = False
        if steps:
            first, last = map(int, steps.split(":"))
            self.stops = (first - 1, last)

    def update(self, step: int) -> None:
        """Starts or ends the trace.

        Args:
            step: the number of updates so far.
        """
        start, end = self.stops or (0, 0)
        if self._is_running and step >= end:
            self._end()
        elif not self._is_running and start <= step < end:
            tf.profiler.experimental.start(self._folder)
            self._is_running = True

    def _end(self):
        tf.profiler.experimental.stop()
        self._is_running = False
        self.stops = ()
        logging.info(
            "Wrote the trace of --profile_steps to %s; tensorboard --logdir=%s shows it with "
            "tensorboard-plugin-profile",
            self._folder,
            os.path.dirname(self._folder),
        )

    def __enter__(self):
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: Any):
        if self._is_running:
            self._end()
        elif self.stops and error_type is None:
            logging.warning(
                "--profile_steps=%d:%d: this run made none of these updates, so there is no trace",
                self.stops[0] + 1,
                self.stops[1],
            )
