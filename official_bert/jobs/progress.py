"""Logs the progress of a long job every ten seconds, with its speed or the time left."""

import time

from absl import logging

_SECS_BETWEEN_LINES = 10.0


class Progress:
    """Logs how far a job is. Call it with the number of finished items."""

    def __init__(self, things: str, total: int | None = None):
        """Starts the clock.

        Args:
            things: the name of the items, such as "lines".
            total: the number of all items, for the time left; None if it is unknown.
        """
        self._things, self._total = things, total
        self._start_secs = self._last_secs = time.monotonic()

    def __call__(self, done: int):
        now_secs = time.monotonic()
        if now_secs - self._last_secs < _SECS_BETWEEN_LINES:
            return
        self._last_secs = now_secs
        secs = now_secs - self._start_secs
        if self._total is None:
            logging.info("%d %s, %.1f a second", done, self._things, done / secs)
        else:
            left_secs = secs / done * (self._total - done)
            logging.info("%d of %d %s, %.0f s left", done, self._total, self._things, left_secs)
