"""A line in the log every ten seconds of a job that goes through lines."""

import time

from absl import logging

_SECS_BETWEEN_LINES = 10.0


class LineProgress:
    """Says how many lines are done, and how many a second."""

    def __init__(self):
        self._start_secs = self._last_secs = time.monotonic()

    def __call__(self, done: int):
        now_secs = time.monotonic()
        if now_secs - self._last_secs >= _SECS_BETWEEN_LINES:
            self._last_secs = now_secs
            logging.info("%d lines done, %.1f lines/s", done, done / (now_secs - self._start_secs))
