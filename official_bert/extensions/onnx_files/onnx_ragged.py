"""Writes rows of different lengths and segments into an ONNX graph.

The windows of texts consist of such rows. Rows are stored one after the other. The row splits are
the indices where they begin, and the end of the last one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from official_bert.extensions.onnx_files.onnx_vectors import VectorWriter


class Ranges(NamedTuple):
    """Rows of consecutive integers, as names of values, each int64.

    Attributes:
        splits: [rows + 1], the row splits.
        starts: [rows], the indices of the first values.
        rows: [values], the row of each value.
        values: [values], the integers.
    """

    splits: str
    starts: str
    rows: str
    values: str


class RaggedWriter(VectorWriter):
    """Writes rows and segments. Arguments and results are the names of values."""

    def make_ranges(self, starts: str, limits: str) -> Ranges:
        """Add rows of the integers from each start to its limit, which is not among them.

        Args:
            starts: int64[rows] or int64[].
            limits: int64[rows] or int64[]. Rows whose limit is not above the start are empty.
        """
        lengths = self.subtract(limits, starts)
        lengths = self.graph.node("Max", lengths, self.number(0))
        splits = self._split(self.flat(lengths))
        row_starts = self.without_last(splits)

        # A value is in the last row that begins at it or before it.
        num_values = self.gather(splits, self.number(-1))
        places = self.fill(self.add(num_values, 1), 0)
        ones = self.fill(self.size(row_starts), 1)
        num_begun = self.scatter(places, row_starts, ones, "add")
        num_begun = self.without_last(self.sum_up_to_each(num_begun))
        rows = self.add(num_begun, -1)

        shifts = self.subtract(starts, row_starts)
        values = self.add(self.indices(num_values), self.gather(shifts, rows))
        return Ranges(splits, row_starts, rows, values)

    def _split(self, lengths: str) -> str:
        """Returns the row splits of rows with some lengths."""
        return self.concat(self.graph.integers(0), self.sum_up_to_each(lengths))

    def gather_rows(self, splits: str, values: str, indices: str) -> tuple[str, str]:
        """Add the rows with some indices.

        Args:
            splits: int64[rows + 1], the row splits.
            values: the values of all rows.
            indices: int64[chosen rows].

        Returns:
            The row splits and the values of the chosen rows.
        """
        starts = self.gather(splits, indices)
        ends = self.gather(self.without_first(splits), indices)
        ranges = self.make_ranges(starts, ends)
        return ranges.splits, self.gather(values, ranges.values)

    def pad_rows(self, splits: str, values: str, filler: str) -> str:
        """Add a matrix of rows, which are filled up to the length of the longest one.

        Args:
            splits: int64[rows + 1], the row splits.
            values: the values of all rows, [values].
            filler: one value, which follows the values of a row.

        Returns:
            The name of [rows, longest].
        """
        starts = self.without_last(splits)
        ends = self.without_first(splits)
        lengths = self.concat(self.graph.integers(0), self.subtract(ends, starts))
        columns = self.indices(self.largest(lengths))
        index = self.add(self.column(starts), columns)
        is_value = self.is_above(self.column(ends), index)
        # The filler is the last value.
        index = self.where(is_value, index, -1)
        return self.gather(self.concat(values, self.flat(filler)), index)

    def split_rows(self, rows: str, num_rows: str) -> str:
        """Add the row splits of values whose rows are known.

        Args:
            rows: int64[values], the rows of the values, in ascending order.
            num_rows: int64[], the number of rows.

        Returns:
            The name of int64[num_rows + 1].
        """
        return self._split(self.count_values(rows, num_rows))

    def count_values(self, numbers: str, num_segments: str) -> str:
        """Add the number of times that each number is in a vector.

        Args:
            numbers: int64[values], numbers of segments.
            num_segments: int64[], the number of segments.

        Returns:
            The name of int64[num_segments].
        """
        ones = self.fill(self.size(numbers), 1)
        return self.scatter(self.fill(num_segments, 0), numbers, ones, "add")

    def reduce_segments(
        self,
        values: str,
        segments: str,
        num_segments: str,
        reduction: str,
        start: np.generic,
    ) -> str:
        """Add the sum, the maximum or the like of the values of each segment.

        Args:
            values: the values, [values, ...].
            segments: int64[values], the segment of each value.
            num_segments: int64[], the number of segments.
            reduction: add, max or min.
            start: the result for a segment without values.

        Returns:
            The name of [num_segments, ...].
        """
        graph = self.graph
        shape = graph.node("Shape", values)
        other_sizes = self.without_first(shape)
        result_shape = self.concat(self.flat(num_segments), other_sizes)
        results = graph.node("Expand", graph.constant(start), result_shape)
        # Each value needs the number of its segment.
        ones = self.fill(self.size(other_sizes), 1)
        columns = graph.node("Reshape", segments, self.concat(graph.integers(-1), ones))
        indices = graph.node("Expand", columns, shape)
        return self.scatter(results, indices, values, reduction)
