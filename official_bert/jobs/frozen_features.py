"""Computes once for each example of a set what frozen weights make of it.

In: an encoded set, and a function that computes features of its batches. Out: the set with these features, which a
temporary file holds for the tokens without padding.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.errors import InputError
from official_bert.features import EncodedSet
from official_bert.progress import Progress
from official_bert.training.distribution import split_over_replicas
from official_bert.training.example_batches import padded_length


class WithFrozenFeatures:
    """An encoded set whose batches have further features, float32[B, S, ...], 0 at padding."""

    def __init__(
        self,
        encoded: EncodedSet,
        run: Callable[[dict], dict],
        strategy: tf.distribute.Strategy,
        batch_size: int,
        max_length: int,
    ):
        """Computes the features of all examples.

        Args:
            encoded: the set.
            run: a function from a batch, split over the replicas, to the features by name, as of `compiled_outputs`.
            strategy: the strategy whose replicas share each batch.
            batch_size: examples of a batch, over all replicas.
            max_length: the maximum padded length of a batch, in tokens.
        """
        self._encoded, self.lengths = encoded, encoded.lengths
        self._starts = np.concatenate([[0], np.cumsum(encoded.lengths)])
        self._files: dict[str, np.memmap] = {}
        logging.info("Computing the outputs of the frozen layers for %d examples ...", len(self.lengths))
        order = np.argsort(-self.lengths, kind="stable")  # batches of similar length
        progress = Progress("examples", len(order))
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            length = padded_length(int(self.lengths[rows].max()), max_length)
            filled = np.concatenate([rows, np.repeat(rows[-1:], -len(rows) % strategy.num_replicas_in_sync)])
            features = encoded.features(filled, length)
            batch = {name: tf.convert_to_tensor(values) for name, values in features.items()}
            for name, values in run(split_over_replicas(strategy, batch, axis=0)).items():
                self._keep(name, np.asarray(values), rows)
            progress(start + len(rows))

    def _keep(self, name: str, values: np.ndarray, rows: np.ndarray):
        """Writes the vectors of some examples, [B, S, ...], into the file of a feature."""
        if name not in self._files:
            shape = (int(self._starts[-1]), *values.shape[2:])
            self._files[name] = _temporary_array(shape, values.dtype)
        for row, value in zip(rows, values, strict=False):
            self._files[name][self._starts[row] : self._starts[row + 1]] = value[: self.lengths[row]]

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns a batch padded to `length`, with the further features."""
        found = self._encoded.features(rows, length)
        for name, file in self._files.items():
            found[name] = np.zeros((len(rows), length, *file.shape[1:]), file.dtype)
            for target, row in zip(found[name], rows, strict=True):
                target[: self.lengths[row]] = file[self._starts[row] : self._starts[row + 1]]
        return found


def _temporary_array(shape: tuple[int, ...], dtype: np.dtype) -> np.memmap:
    """Returns an array in a file without a name, whose space is free again when the last reference is gone.

    Raises:
        InputError: the disk has not enough room.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    folder = tempfile.gettempdir()
    logging.info("The outputs take %.1f MB in %s", size / 1e6, folder)
    try:
        with tempfile.TemporaryFile() as file:
            os.posix_fallocate(
                file.fileno(), 0, size
            )  # without room, a write into the mapped file ends the process
            return np.memmap(file, dtype, "r+", shape=shape)
    except OSError as error:
        raise InputError(
            f"{folder}: has no room for the outputs of the frozen layers, {size / 1e6:.1f} MB ({error.strerror}); name "
            "a folder with more room in the variable TMPDIR"
        ) from error
