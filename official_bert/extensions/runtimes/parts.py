"""Computes large batches of ids in parts whose activations fit the processor's cache.

onnxruntime and LiteRT compute one operation of the graph after the other. Each operation passes
over the activations of the whole batch, which in a part are still in the cache.
"""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from official_bert.features import ENCODER_INPUTS

# Of the largest activation of a layer, for each thread. The second-level cache of today's
# processors has 1 to 2 MB, but smaller parts cost more calls than they save.
_BYTES_PER_THREAD = 4 * 2**20
_BYTES_OF_FLOAT = 4
_IDS = ENCODER_INPUTS[0]

Arrays = Mapping[str, np.ndarray]
Call = Callable[[Any, str, Arrays], dict[str, np.ndarray]]


def tokens_of_part(intermediate_size: int, num_threads: int | None) -> int:
    """Returns the number of tokens of a part.

    Args:
        intermediate_size: the width of the largest activation.
        num_threads: the threads that compute; None for those of the machine.
    """
    if num_threads is None:
        num_threads = os.cpu_count() or 1
    bytes_per_token = _BYTES_OF_FLOAT * intermediate_size
    return num_threads * _BYTES_PER_THREAD // bytes_per_token


def in_parts(call: Call) -> Call:
    """Makes the `__call__` of a runtime compute a batch of ids in parts of its `tokens_of_part`.

    A runtime without a limit, or other inputs than ids, such as texts, are computed at once.
    """

    @functools.wraps(call)
    def call_in_parts(
        self: Any,
        signature: str,
        inputs: Arrays,
    ) -> dict[str, np.ndarray]:
        limit = self.tokens_of_part
        if limit is None or not _is_batch_of_ids(inputs):
            return call(self, signature, inputs)
        ids = inputs[_IDS]
        if ids.size <= limit:
            return call(self, signature, inputs)
        tokens_of_row = ids.size // len(ids)
        num_rows = max(1, limit // tokens_of_row)
        outputs: dict[str, list[np.ndarray]] = {}
        for start in range(0, len(ids), num_rows):
            end = start + num_rows
            part = {name: array[start:end] for name, array in inputs.items()}
            for name, value in call(self, signature, part).items():
                outputs.setdefault(name, []).append(value)
        return {name: _join(values) for name, values in outputs.items()}

    return call_in_parts


def _is_batch_of_ids(inputs: Arrays) -> bool:
    """Returns whether all inputs have a row for each row of ids."""
    if _IDS not in inputs:
        return False
    num_rows = len(inputs[_IDS])
    return all(len(array) == num_rows for array in inputs.values())


def _join(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the rows of all parts; those of narrower parts are filled with 0, as in `predict`."""
    if parts[0].ndim > 1:
        width = max(part.shape[1] for part in parts)
        parts = [_widen(part, width) for part in parts]
    return np.concatenate(parts)


def _widen(part: np.ndarray, width: int) -> np.ndarray:
    """Returns [n, width, ...], filled with 0."""
    missing = width - part.shape[1]
    if not missing:
        return part
    padding = [(0, 0)] * part.ndim
    padding[1] = (0, missing)
    return np.pad(part, padding)
