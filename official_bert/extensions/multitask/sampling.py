"""How many batches each task of a joint training gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from official_bert.extensions.multitask.options import ANNEALED, POWER, ROUND_ROBIN

_LAST_EXPONENT = 0.2  # of ANNEALED


class Sampling(NamedTuple):
    """How many batches each task gives.

    Attributes:
        kind: a value of --set_sampling.
        exponent: the exponent of the sizes of the sets with --set_sampling=power.
        num_epochs: the number of epochs of the training.
        buffer_size: the size of the shuffle buffer; None for that of each set.
    """

    kind: str
    exponent: float
    num_epochs: float
    buffer_size: int | None

    def compute_weights(self, sizes: Sequence[int], epoch: int) -> list[float]:
        """Returns the weights of sets in an epoch.

        Args:
            sizes: the numbers of examples of the sets.
            epoch: the number of the epoch, from 0.
        """
        exponent = self._compute_exponent(epoch)
        return [float(size) ** exponent for size in sizes]

    def _compute_exponent(self, epoch: int) -> float:
        if self.kind == ROUND_ROBIN:
            return 0.0
        if self.kind == POWER:
            return self.exponent
        if self.kind != ANNEALED:
            return 1.0
        num_epochs = math.ceil(self.num_epochs)
        last_epoch = max(1, num_epochs - 1)
        progress = min(1.0, epoch / last_epoch)
        fall = 1.0 - _LAST_EXPONENT
        return 1.0 - fall * progress
