"""Several encoded sets as one: which examples of a batch are of which set.

In: the sets by name. Out: the places of their examples, and the features of those in a batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.features import EncodedSet


class SetPart(NamedTuple):
    """The examples of one set in a batch.

    Attributes:
        places: their places in the batch, int[k].
        features: their features, each [k, ...].
    """

    places: np.ndarray
    features: Mapping[str, np.ndarray]


class JoinedSets:
    """The examples of several sets, one set after the other."""

    def __init__(self, names: Sequence[str], sets: Sequence[EncodedSet]):
        """Joins sets.

        Args:
            names: the name of each set.
            sets: the sets.
        """
        self._names = names
        self._sets = sets
        self._starts = [0]
        for encoded in sets:
            end = self._starts[-1] + len(encoded.lengths)
            self._starts.append(end)

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each example, int[n]."""
        return np.concatenate([encoded.lengths for encoded in self._sets])

    @property
    def slices(self) -> dict[str, slice]:
        """The places of the examples of each set."""
        places = {}
        spans = itertools.pairwise(self._starts)
        for name, (start, end) in zip(self._names, spans, strict=True):
            places[name] = slice(start, end)
        return places

    def find_sets(self, rows: np.ndarray) -> np.ndarray:
        """Returns the number of the set of each example, int[b].

        Args:
            rows: the indices of the examples, int[b].
        """
        ends = self._starts[1:]
        return np.searchsorted(ends, rows, side="right")

    def read_parts(self, rows: np.ndarray, length: int) -> dict[int, SetPart]:
        """Returns the features of the examples of each set that has some of them.

        Args:
            rows: the indices of the examples, int[b].
            length: the number of tokens.

        Returns:
            The examples by the number of the set, in ascending order.
        """
        numbers = self.find_sets(rows)
        parts = {}
        for number in np.unique(numbers).tolist():
            places = np.flatnonzero(numbers == number)
            set_rows = rows[places] - self._starts[number]
            features = self._sets[number].features(set_rows, length)
            parts[number] = SetPart(places, features)
        return parts
