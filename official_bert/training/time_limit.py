"""The hours that a training may take: --max_train_hours."""

import time

import tensorflow as tf

from official_bert.training.workers import Workers


class TimeLimit:
    """The hours of --max_train_hours, and how many of them a training has used.

    The hours of earlier runs of the training count, too.

    Attributes:
        clock: returns the time in seconds.
        position: the used share of the time, in updates; float32[].
        state: the variables that are saved with a checkpoint, by name.
    """

    clock = staticmethod(time.monotonic)

    def __init__(self, hours: float, num_train_steps: int):
        """Makes the variables, in the scope of the current strategy.

        Args:
            hours: the hours that the training may take.
            num_train_steps: the number of updates that `position` counts up to.
        """
        self._secs = 3600 * hours
        self._num_train_steps = num_train_steps
        self._start_secs = 0.0
        self._used_millisecs = tf.Variable(
            0,
            trainable=False,
            dtype=tf.int64,
            name="train_millisecs",
        )
        self.position = tf.Variable(0.0, trainable=False, name="position")
        self.state = {"train_millisecs": self._used_millisecs}

    @property
    def secs_left(self) -> float:
        """The remaining seconds, at least 0."""
        return max(0.0, self._secs - self._used_secs)

    @property
    def _used_secs(self) -> float:
        return int(self._used_millisecs.numpy()) / 1000

    def restore(self, used_millisecs: int | None, workers: Workers) -> None:
        """Starts the clock.

        Args:
            used_millisecs: the time that was saved; None for none.
            workers: the processes that train together.
        """
        self._use(workers.broadcast_from_chief(used_millisecs or 0))
        self._start_secs = self.clock() - self._used_secs

    def update(self, workers: Workers) -> None:
        """Reads the clock; all workers have the time of the chief.

        Args:
            workers: the processes that train together.
        """
        used_secs = self.clock() - self._start_secs
        self._use(workers.broadcast_from_chief(round(1000 * used_secs)))

    def _use(self, millisecs: int):
        self._used_millisecs.assign(millisecs)
        used_share = 1 - self.secs_left / self._secs
        self.position.assign(self._num_train_steps * used_share)
