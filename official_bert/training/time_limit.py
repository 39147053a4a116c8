"""The hours that a training may take: --max_train_hours."""

import time

import tensorflow as tf

from official_bert.training.workers import Workers


class TimeLimit:
    """The hours of --max_train_hours, and how many of them a training has used, with earlier runs.

    Attributes:
        position: the used share of the time, in updates; float32[].
        state: the variables that are saved beside a checkpoint, by name.
    """

    clock = staticmethod(time.monotonic)

    def __init__(self, hours: float, num_train_steps: int):
        """Makes the variables, in the scope of the current strategy."""
        self._secs, self._num_train_steps = 3600 * hours, num_train_steps
        self._used = tf.Variable(0, trainable=False, dtype=tf.int64, name="train_millisecs")
        self.position = tf.Variable(0.0, trainable=False, name="position")
        self.state = {"train_millisecs": self._used}

    @property
    def secs_left(self) -> float:
        """The remaining seconds, at least 0."""
        return max(0.0, self._secs - int(self._used.numpy()) / 1000)

    def restore(self, used: int | None, workers: Workers):
        """Starts the clock, at the milliseconds that were saved if there are any."""
        self._use(workers.broadcast_from_chief(used or 0))
        self._start_secs = self.clock() - int(self._used.numpy()) / 1000

    def update(self, workers: Workers):
        """Reads the clock, which for all workers is the chief's."""
        used = round(1000 * (self.clock() - self._start_secs))
        self._use(workers.broadcast_from_chief(used))

    def _use(self, millisecs: int):
        self._used.assign(millisecs)
        self.position.assign(self._num_train_steps * (1 - self.secs_left / self._secs))
