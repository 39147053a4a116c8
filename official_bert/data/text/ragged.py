"""Stores many model inputs without padding; a task keeps them in memory and pads them batch by batch.

In: the ids of each input. Out: the three encoder features of any selection of inputs, padded to any length.
"""

import array
from collections.abc import Iterable, Sequence

import numpy as np

from official_bert.features import encoder_features


class RaggedRows:
    """Rows of different lengths, concatenated in one array.

    Args:
        rows: the rows, each of integers.

    Attributes:
        values: int32[sum of lengths], the values of all rows.
        starts: int64[rows + 1], the offset in `values` at which each row begins, then the end of the last row.
        lengths: int64[rows], the number of values in each row.
    """

    def __init__(self, rows: Iterable[Iterable[int]]):
        values, starts = array.array("i"), array.array("q", [0])
        for row in rows:
            values.extend(row)
            starts.append(len(values))
        self.values, self.starts = np.array(values), np.array(starts)
        self.lengths = np.diff(self.starts)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values[self.starts[row] : self.starts[row + 1]]

    def padded(self, rows: np.ndarray, length: int) -> np.ndarray:
        """Returns the chosen rows padded with zeros, int32[len(rows), length]; no row may be longer."""
        batch = np.zeros((len(rows), length), self.values.dtype)
        if len(rows):
            batch[_length_mask(self.lengths[rows], length)] = np.concatenate([self[row] for row in rows])
        return batch


class ModelInputs:
    """The inputs of a data set.

    Args:
        inputs: the ids of each input, special tokens included, and the number of its tokens in segment 0.

    Attributes:
        ids: the ids, one row for each input.
        num_first: int32[inputs], the number of tokens in segment 0.
    """

    def __init__(self, inputs: Iterable[tuple[Sequence[int], int]]):
        num_first = []

        def rows():
            for ids, count in inputs:
                num_first.append(count)
                yield ids

        self.ids = RaggedRows(rows())
        self.num_first = np.asarray(num_first, np.int32)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each input, special tokens included: int64[inputs]."""
        return self.ids.lengths

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns `input_ids`, `input_mask` and `segment_ids` of the chosen inputs, each int32[len(rows), length].

        Args:
            rows: int[n], the indices of the inputs.
            length: the length to pad to; no input may be longer.
        """
        mask = _length_mask(self.lengths[rows], length)
        values = (self.ids.padded(rows, length), mask, mask & ~_length_mask(self.num_first[rows], length))
        table = encoder_features(length)
        return {
            feature.name: value.astype(feature.dtype) for feature, value in zip(table, values, strict=True)
        }


def _length_mask(lengths: np.ndarray, width: int) -> np.ndarray:
    """Returns bool[rows, width], true in the first `lengths[row]` columns of a row."""
    return np.arange(width) < lengths[:, None]
