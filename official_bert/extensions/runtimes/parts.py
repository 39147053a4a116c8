"""Computes large batches of ids in parts, because smaller activations stay in the caches.

onnxruntime and LiteRT compute one operation of the graph after the other, and each passes over the
activations of the whole batch.
"""

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from official_bert.features import ENCODER_INPUTS
from official_bert.training.loop import widen

# The bytes of the feed-forward activation of a part, for each thread. Larger parts leave the
# caches, and smaller ones cost more calls (docs/reports/exports.md, "Large batches").
_THREAD_BYTES = 4 * 2**20
_FLOAT_BYTES = 4
_IDS = ENCODER_INPUTS[0]

Arrays = Mapping[str, np.ndarray]
Call = Callable[[Any, str, Arrays], dict[str, np.ndarray]]


def compute_part_tokens(intermediate_size: int, num_threads: int | None) -> int:
    """Returns the maximum number of tokens of a part.

    Args:
        intermediate_size: the width of the feed-forward layer.
        num_threads: the threads that compute; None for those of the machine.
    """
    if num_threads is None:
        num_threads = os.cpu_count() or 1
    token_bytes = _FLOAT_BYTES * intermediate_size
    return num_threads * _THREAD_BYTES // token_bytes


def split_batches(call: Call) -> Call:
    """Makes the `__call__` of a runtime compute a batch of ids in parts of its `max_part_tokens`.

    The parts have equal numbers of rows, but for the last one. A row is never split. Batches of a
    runtime without a limit, and inputs other than ids, are not split.

    Args:
        call: the method.
    """

    @functools.wraps(call)
    def call_in_parts(
        self: Any,
        signature: str,
        inputs: Arrays,
    ) -> dict[str, np.ndarray]:
        limit = self.max_part_tokens
        if limit is None or not _is_id_batch(inputs):
            return call(self, signature, inputs)
        ids = inputs[_IDS]
        if ids.size <= limit:
            return call(self, signature, inputs)
        row_tokens = ids.size // len(ids)
        max_rows = max(1, limit // row_tokens)
        num_parts = math.ceil(len(ids) / max_rows)
        num_rows = math.ceil(len(ids) / num_parts)
        outputs: dict[str, list[np.ndarray]] = {}
        for start in range(0, len(ids), num_rows):
            part = {}
            for name, array in inputs.items():
                part[name] = array[start : start + num_rows]
            for name, value in call(self, signature, part).items():
                outputs.setdefault(name, []).append(value)
        return {name: _join(values) for name, values in outputs.items()}

    return call_in_parts


def _is_id_batch(inputs: Arrays) -> bool:
    """Returns whether all inputs have a row for each row of ids."""
    if _IDS not in inputs:
        return False
    num_rows = len(inputs[_IDS])
    return all(len(array) == num_rows for array in inputs.values())


def _join(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the rows of all parts, [n, ...]. Those of narrower parts are filled up."""
    widest = max(parts, key=lambda part: part.shape[1:2])
    return np.concatenate([widen(part, widest) for part in parts])
