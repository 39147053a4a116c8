"""A line in the log every ten seconds of a long job: how much is done, and how fast or how long it still takes."""

import time

from absl import logging

_SECS_BETWEEN_LINES = 10.0


class Progress:
    """Logs how far a job is. Call it with the number of things done so far."""

    def __init__(self, things: str, total: int | None = None):
        """Starts the clock.

        Args:
            things: that are counted, "lines", for example.
            total: how many there are, for the time left; None if that is not known.
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
