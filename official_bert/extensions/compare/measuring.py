"""Measures the exports of a comparison: their quality, their size, and their times in turns."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.features import ENCODER_INPUTS, EncodedSet
from official_bert.io import files
from official_bert.serving.exported_model import DEFAULT, OpenedExport
from official_bert.training.batches import padded_length

_MEGABYTE = 1e6
_NUM_SINGLE_TEXTS = 32
_BATCH_SIZE = 32
_NUM_BATCHES = 2

Batch = dict[str, np.ndarray]


class TimedBatches(NamedTuple):
    """The inputs by which exports are timed.

    Attributes:
        single: batches of one text.
        full: batches of many texts.
    """

    single: list[Batch]
    full: list[Batch]


class TimedExport(NamedTuple):
    """An export, and the inputs by which it is timed."""

    export: OpenedExport
    batches: TimedBatches


class Times(NamedTuple):
    """The times of an export.

    Attributes:
        ms_per_text: the milliseconds for a text alone.
        texts_per_second: the texts a second in batches.
    """

    ms_per_text: float
    texts_per_second: float


def make_batches(encoded: EncodedSet, max_seq_length: int) -> TimedBatches:
    """Make the inputs by which exports are timed, of examples that are spread over a set.

    Args:
        encoded: the set. The examples of a small one are repeated.
        max_seq_length: the largest number of tokens of an input.
    """
    num_examples = len(encoded.lengths)
    single_rows = _spread_rows(num_examples, _NUM_SINGLE_TEXTS)[:, None]
    full_rows = _spread_rows(num_examples, _NUM_BATCHES * _BATCH_SIZE)
    full_rows = full_rows.reshape(_NUM_BATCHES, _BATCH_SIZE)
    return TimedBatches(
        [_make_batch(encoded, rows, max_seq_length) for rows in single_rows],
        [_make_batch(encoded, rows, max_seq_length) for rows in full_rows],
    )


def _spread_rows(num_examples: int, num_rows: int) -> np.ndarray:
    places = np.linspace(0, num_examples, num_rows, endpoint=False)
    return places.astype(int)


def _make_batch(encoded: EncodedSet, rows: np.ndarray, max_seq_length: int) -> Batch:
    """Returns the features of examples, padded as predictions are."""
    length = padded_length(int(encoded.lengths[rows].max()), max_seq_length)
    features = encoded.features(rows, length)
    return {name: np.asarray(features[name]) for name in ENCODER_INPUTS}


def measure_times(exports: Mapping[str, TimedExport], num_rounds: int) -> dict[str, Times]:
    """Measure the times of exports in turns.

    Args:
        exports: name -> the export.
        num_rounds: how often each export is measured.

    Returns:
        Name -> the medians of the times.
    """
    single_secs: dict[str, list[float]] = {name: [] for name in exports}
    full_secs: dict[str, list[float]] = {name: [] for name in exports}
    for round_number in range(num_rounds + 1):
        for name, (export, batches) in exports.items():
            single = _measure_secs(export, batches.single)
            full = _measure_secs(export, batches.full)
            # The first round allocates memory and compiles.
            if round_number:
                single_secs[name].append(single)
                full_secs[name].append(full)
    times = {}
    for name, (_, batches) in exports.items():
        num_texts = len(batches.full) * _BATCH_SIZE
        times[name] = Times(
            ms_per_text=1e3 * float(np.median(single_secs[name])) / len(batches.single),
            texts_per_second=num_texts / float(np.median(full_secs[name])),
        )
    return times


def _measure_secs(export: OpenedExport, batches: Sequence[Batch]) -> float:
    start = time.perf_counter()
    for batch in batches:
        export(DEFAULT, batch)
    return time.perf_counter() - start


def measure_megabytes(folder: str) -> float:
    """Return the size of all files below a folder, in megabytes.

    Args:
        folder: the path of the folder.
    """
    size = 0
    for parent, _, names in os.walk(folder):
        size += sum(files.size(os.path.join(parent, name)) for name in names)
    return size / _MEGABYTE
