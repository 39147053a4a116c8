"""What a training computes: its tokens and floating-point operations, counted from its batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf


class WorkCounter:
    """Counts the work of a training from the shapes of its batches.

    Attributes:
        tokens: the number of positions of all sequences so far, padding included.
        flops: the number of floating-point operations so far.
    """

    def __init__(self, strategy: tf.distribute.Strategy, flops_of: Callable[[int, int, int], int]):
        """Starts at 0.

        Args:
            flops_of: the operations of an update, as a function of the number of its sequences, their padded length and
                the number of masked LM positions of each, 0 without such positions.
        """
        self._strategy, self._flops_of = strategy, flops_of
        self.tokens, self.flops = 0, 0

    def add(self, drawn: Mapping | list[Mapping], num_steps: int):
        """Counts the batches of a call into TensorFlow, in the form of `loop.Drawn`."""
        for batch, count in [(drawn, num_steps)] if isinstance(drawn, Mapping) else [(one, 1) for one in drawn]:
            _, per_replica, *choices, length = self._shape(batch["input_ids"])
            num_sequences = per_replica * self._strategy.num_replicas_in_sync
            for number in choices:
                num_sequences *= number
            positions = batch.get("masked_lm_positions")
            num_predictions = 0 if positions is None else self._shape(positions)[-1]
            self.tokens += count * num_sequences * length
            self.flops += count * self._flops_of(num_sequences, length, num_predictions)

    def _shape(self, value) -> list[int]:
        """Returns the shape of a feature on one replica."""
        return self._strategy.experimental_local_results(value)[0].shape.as_list()
