"""Many model inputs without their padding: what a task keeps in memory, padded batch by batch.

In: ids of each input. Out: the three encoder features of any choice of inputs, at any length.
"""

import array
from collections.abc import Iterable, Sequence

import numpy as np

from official_bert.features import encoder_features


class RaggedRows:
    """Rows of different lengths, end to end in one array.

    Args:
        rows: of whole numbers.

    Attributes:
        values: int32[sum of lengths].
        starts: int64[rows + 1], where each row begins and the last one ends.
        lengths: int64[rows].
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
        """Some rows, each filled up with zeros: int32[len(rows), length]; none may be longer."""
        batch = np.zeros((len(rows), length), self.values.dtype)
        if len(rows):
            batch[_filled(self.lengths[rows], length)] = np.concatenate([self[row] for row in rows])
        return batch


class ModelInputs:
    """The inputs of a data set.

    Args:
        inputs: ids of each, special tokens included, and how many of them are of segment 0.

    Attributes:
        ids: the ids, row by row.
        num_first: int32[inputs], tokens of segment 0.
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
        """int64[inputs], special tokens included."""
        return self.ids.lengths

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """`input_ids`, `input_mask` and `segment_ids` of some inputs, each int32[len(rows), length].

        Args:
            rows: int[n], which inputs, in order.
            length: that they are padded to; none may be longer.
        """
        mask = _filled(self.lengths[rows], length)
        values = (self.ids.padded(rows, length), mask, mask & ~_filled(self.num_first[rows], length))
        table = encoder_features(length)
        return {
            feature.name: value.astype(feature.dtype) for feature, value in zip(table, values, strict=True)
        }


def _filled(lengths: np.ndarray, width: int) -> np.ndarray:
    """bool[rows, width]: true in the first `lengths[row]` places of a row."""
    return np.arange(width) < lengths[:, None]
