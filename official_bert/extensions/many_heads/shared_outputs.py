"""Computes the outputs of all heads once for the requests of one call.

The client of each head asks for the outputs of its own texts or tokens. The first one that asks for
a row of tokens computes it for all heads. The others get the outputs of equal rows.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from official_bert.extensions.many_heads.head_records import FIRST_TEXT, SECOND_TEXT
from official_bert.features import ENCODER_INPUTS, EncodedSet
from official_bert.serving.exported_model import DEFAULT, TEXT_SIGNATURE
from official_bert.tasks.clients import Row, Texts, split_rows


class SharedOutputs:
    """The outputs of all heads for the requests of one call."""

    def __init__(self, export: Any):
        """Makes a store without outputs.

        Args:
            export: the opened export.
        """
        self._export = export
        self._rows: dict[Hashable, Row] = {}

    def compute_texts(self, requests: Sequence[Texts]) -> None:
        """Computes the outputs of requests by an export that reads texts.

        Args:
            requests: a text or a pair of texts for each request.
        """
        firsts = [texts[0] for texts in requests]
        seconds = [texts[1] if len(texts) > 1 else "" for texts in requests]
        columns = {FIRST_TEXT: firsts, SECOND_TEXT: seconds}
        rows = self._export.run_texts(columns, TEXT_SIGNATURE)
        for first, second, row in zip(firsts, seconds, rows, strict=True):
            self._rows[first, second] = row
            # A head of single texts gives equal outputs to all pairs with this text.
            self._rows[first,] = row

    def find_texts(self, columns: Sequence[Sequence[str]]) -> list[Row]:
        """Returns the outputs of requests of `compute_texts`.

        Args:
            columns: the texts that a head reads: the first ones of all requests, and the second
                ones of a head of pairs.
        """
        return [self._rows[key] for key in zip(*columns, strict=True)]

    def run(self, encoded: EncodedSet) -> dict[str, np.ndarray]:
        """Returns the outputs of all heads for a set; only rows that are new are computed.

        Args:
            encoded: the examples.

        Returns:
            The outputs by name, [n, ...], filled with 0 behind the end of shorter examples.
        """
        keys = _make_keys(encoded)
        new_rows = {}
        for index, key in enumerate(keys):
            if key not in self._rows:
                new_rows[key] = index
        if new_rows:
            indices = np.array(list(new_rows.values()))
            outputs = self._export.run(_Subset(encoded, indices), DEFAULT)
            computed = split_rows(outputs)
            self._rows.update(zip(new_rows, computed, strict=True))
        rows = [self._rows[key] for key in keys]
        stacked = {}
        for name in rows[0]:
            values = [row[name] for row in rows]
            stacked[name] = _stack(values)
        return stacked


class _Subset(NamedTuple):
    """Some examples of a set.

    Attributes:
        encoded: the set.
        rows: the indices of the examples.
    """

    encoded: EncodedSet
    rows: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each example: int[n]."""
        return self.encoded.lengths[self.rows]

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns the features of examples; see `EncodedSet.features`."""
        return self.encoded.features(self.rows[rows], length)


def _make_keys(encoded: EncodedSet) -> list[bytes]:
    """Returns the encoder features of each example as bytes, without padding."""
    lengths = encoded.lengths
    longest = int(lengths.max())
    features = encoded.features(np.arange(len(lengths)), longest)
    inputs = [features[name] for name in ENCODER_INPUTS]
    stacked = np.stack(inputs, axis=1).astype(np.int32)
    keys = []
    for row, length in zip(stacked, lengths, strict=True):
        tokens = row[:, :length]
        keys.append(tokens.tobytes())
    return keys


def _stack(values: Sequence[np.ndarray]) -> np.ndarray:
    """Stacks the outputs of rows, whose first dimension may be a number of tokens."""
    first = np.asarray(values[0])
    if not first.ndim:
        # Texts stay bytes of any length.
        return np.array(values, object if first.dtype.kind == "S" else first.dtype)
    longest = max(len(value) for value in values)
    stacked = np.zeros((len(values), longest, *first.shape[1:]), first.dtype)
    for row, value in zip(stacked, values, strict=True):
        row[: len(value)] = value
    return stacked


_current: contextvars.ContextVar[SharedOutputs | None] = contextvars.ContextVar(
    "shared_outputs", default=None
)


def current_outputs() -> SharedOutputs | None:
    """Returns the store of the call in this thread; None outside of `share_outputs`."""
    return _current.get()


@contextlib.contextmanager
def share_outputs(outputs: SharedOutputs) -> Iterator[None]:
    """Lets the heads get their outputs from a store, in this thread.

    Args:
        outputs: the store.
    """
    token = _current.set(outputs)
    try:
        yield
    finally:
        _current.reset(token)
