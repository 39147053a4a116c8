"""Writes computations with vectors of integers and bools into an ONNX graph."""

from __future__ import annotations

import numpy as np

from official_bert.extensions.onnx_files.onnx_graph import OnnxGraph

LAST = np.iinfo(np.int64).max  # the end of a slice that has all values


class VectorWriter:
    """Writes computations with vectors of int64.

    The arguments and results of the methods are the names of values. In place of a value, `add`,
    `is_equal`, `is_above` and `where` also accept a number.

    Attributes:
        graph: the graph to write into.
    """

    def __init__(self, graph: OnnxGraph):
        """Writes into a graph.

        Args:
            graph: the graph.
        """
        self.graph = graph

    def number(self, value: int) -> str:
        """Return a constant.

        Args:
            value: the constant.
        """
        return self.graph.constant(np.int64(value))

    def _value(self, value: str | int) -> str:
        return value if isinstance(value, str) else self.number(value)

    def add(self, x: str, y: str | int) -> str:
        """Return the sum of two values.

        Args:
            x: the first value.
            y: the second value, or a number.
        """
        return self.graph.node("Add", x, self._value(y))

    def subtract(self, x: str, y: str) -> str:
        """Return the difference of two values.

        Args:
            x: the value to subtract from.
            y: the value to subtract.
        """
        return self.graph.node("Sub", x, y)

    def is_equal(self, x: str, y: str | int) -> str:
        """Return whether values are equal.

        Args:
            x: the first value.
            y: the second value, or a number.
        """
        return self.graph.node("Equal", x, self._value(y))

    def is_above(self, x: str, y: str | int) -> str:
        """Return whether values are larger than others.

        Args:
            x: the values.
            y: what they are compared with, a value or a number.
        """
        return self.graph.node("Greater", x, self._value(y))

    def both(self, x: str, y: str) -> str:
        """Return whether two bools are true.

        Args:
            x: the first bool.
            y: the second bool.
        """
        return self.graph.node("And", x, y)

    def either(self, x: str, y: str) -> str:
        """Return whether one of two bools is true.

        Args:
            x: the first bool.
            y: the second bool.
        """
        return self.graph.node("Or", x, y)

    def negate(self, x: str) -> str:
        """Return whether a bool is false.

        Args:
            x: the bool.
        """
        return self.graph.node("Not", x)

    def where(self, condition: str, x: str | int, y: str | int) -> str:
        """Return values of `x` where a condition is true, and of `y` elsewhere.

        Args:
            condition: bool[...].
            x: the values where the condition is true, or a number.
            y: the values elsewhere, or a number.
        """
        return self.graph.node("Where", condition, self._value(x), self._value(y))

    def gather(self, values: str, indices: str) -> str:
        """Return the values with some indices.

        Args:
            values: [values, ...].
            indices: the indices in the first axis.
        """
        return self.graph.node("Gather", values, indices, axis=0)

    def select(self, values: str, is_chosen: str) -> str:
        """Return the values of a vector where another one is true.

        Args:
            values: [values, ...].
            is_chosen: bool[values].
        """
        return self.graph.node("Compress", values, is_chosen, axis=0)

    def scatter(self, values: str, indices: str, updates: str, reduction: str = "none") -> str:
        """Return values of which those with some indices are replaced or reduced.

        Args:
            values: [values].
            indices: int64[updates], which values change.
            updates: [updates], what they are replaced by or reduced with.
            reduction: "none" replaces values; "add" and "max" combine them with the old ones.
        """
        return self.graph.node(
            "ScatterElements", values, indices, updates, axis=0, reduction=reduction
        )

    def to_int64(self, x: str) -> str:
        """Return values as int64.

        Args:
            x: the values, of any type.
        """
        return self.graph.cast(x, np.int64)

    def flat(self, x: str) -> str:
        """Return all values as a vector.

        Args:
            x: the values, of any shape.
        """
        return self.graph.node("Reshape", x, self.graph.integers(-1))

    def column(self, x: str) -> str:
        """Return a vector as a matrix of one column.

        Args:
            x: [values].
        """
        return self.graph.node("Unsqueeze", x, self.graph.integers(1))

    def concat(self, *parts: str) -> str:
        """Return the values of several vectors, one after the other.

        Args:
            *parts: the vectors, of one type.
        """
        return self.graph.node("Concat", *parts, axis=0)

    def without_first(self, x: str) -> str:
        """Return a vector without its first value.

        Args:
            x: [values].
        """
        return self.graph.node("Slice", x, self.graph.integers(1), self.graph.integers(LAST))

    def without_last(self, x: str) -> str:
        """Return a vector without its last value.

        Args:
            x: [values].
        """
        return self.graph.node("Slice", x, self.graph.integers(0), self.graph.integers(-1))

    def sum_up_to_each(self, x: str) -> str:
        """Return the sum of the values up to each value of a vector, including it.

        Args:
            x: [values].
        """
        return self.graph.node("CumSum", x, self.number(0))

    def count_up_to_each(self, is_chosen: str) -> str:
        """Return the number of true values up to each value of a vector, including it.

        Args:
            is_chosen: bool[values].
        """
        return self.sum_up_to_each(self.to_int64(is_chosen))

    def true_indices(self, is_chosen: str) -> str:
        """Return the indices of the true values of a vector.

        Args:
            is_chosen: bool[values].
        """
        return self.flat(self.graph.node("NonZero", is_chosen))

    def index_in_groups(self, starts: str) -> str:
        """Return the index of each value in its group.

        Args:
            starts: bool[values], whether a group begins here.
        """
        group_starts = self.true_indices(starts)
        groups = self.add(self.count_up_to_each(starts), -1)
        index = self.indices(self.size(starts))
        return self.subtract(index, self.gather(group_starts, groups))

    def size(self, x: str) -> str:
        """Return the number of values.

        Args:
            x: the values, of any shape.
        """
        return self.graph.node("Size", x)

    def largest(self, x: str) -> str:
        """Return the largest value, int64[].

        Args:
            x: the values; there must be one.
        """
        return self.graph.node("ReduceMax", x, keepdims=0)

    def fill(self, size: str, value: int) -> str:
        """Return a vector of one number.

        Args:
            size: int64[], the number of values.
            value: the number.
        """
        shape = self.flat(size)
        return self.graph.node("Expand", self.number(value), shape)

    def indices(self, size: str) -> str:
        """Return the numbers from 0 to the one below a size.

        Args:
            size: int64[], the size.
        """
        return self.graph.node("Range", self.number(0), size, self.number(1))
