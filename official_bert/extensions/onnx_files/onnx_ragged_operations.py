"""Writes the operations that make windows of texts into an ONNX graph.

`RAGGED_OPERATIONS` has a function for each type of operation, as `OPERATIONS` of
onnx_operations.py. These are the operations that graph_text and the choice of answers need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from official_bert.extensions.onnx_files.onnx_operations import OperationWriter, Write


def _list_indices(writer: OperationWriter, x: str) -> str:
    """Returns the indices of the true values, int64[true values, rank]."""
    return writer.graph.node("Transpose", writer.graph.node("NonZero", x), perm=[1, 0])


# Rows of different lengths.


def _range(
    writer: OperationWriter, operation: tf.Operation, starts: str, limits: str, steps: str
) -> list[str]:
    assert writer.number(steps) == 1, "graph_text has ranges of consecutive integers"
    graph = writer.graph
    starts = graph.cast(starts, np.int64)
    limits = graph.cast(limits, np.int64)
    ranges = writer.ragged.make_ranges(starts, limits)
    splits = writer.cast_output(operation, ranges.splits)
    return [splits, writer.cast_output(operation, ranges.values, index=1)]


def _gather_rows(
    writer: OperationWriter, operation: tf.Operation, splits: str, values: str, indices: str
) -> list[str]:
    return list(writer.ragged.gather_rows(splits, values, indices))


def _to_tensor(
    writer: OperationWriter,
    operation: tf.Operation,
    shape: str,
    values: str,
    filler: str,
    *partition: str,
) -> str:
    assert np.all(writer.numbers(shape) == -1), "graph_text pads to the longest row"
    graph = writer.graph
    splits = partition[0]
    if len(partition) == 2:
        num_rows, rows = (graph.cast(value, np.int64) for value in partition)
        splits = writer.ragged.split_rows(rows, num_rows)
    return writer.ragged.pad_rows(splits, values, filler)


# Segments.


def _bin_count(
    writer: OperationWriter, operation: tf.Operation, numbers: str, size: str, weights: str
) -> str:
    graph = writer.graph
    numbers = graph.cast(numbers, np.int64)
    counts = writer.ragged.count_values(numbers, graph.cast(size, np.int64))
    return writer.cast_output(operation, counts)


def _reduce(reduction: str) -> Write:
    """Returns a writer of the sum, the maximum or the minimum of each segment."""

    def write(
        writer: OperationWriter, operation: tf.Operation, x: str, segments: str, count: str = ""
    ) -> str:
        graph = writer.graph
        segments = graph.cast(segments, np.int64)
        num_segments = graph.cast(count, np.int64) if count else _count_segments(writer, segments)
        start = _start(reduction, operation.inputs[0].dtype.as_numpy_dtype)
        return writer.ragged.reduce_segments(x, segments, num_segments, reduction, start)

    return write


def _start(reduction: str, dtype: Any) -> np.generic:
    """Returns what a reduction begins with: 0, or the smallest or the largest number."""
    if reduction == "add":
        return dtype(0)
    limits = np.finfo(dtype) if issubclass(dtype, np.floating) else np.iinfo(dtype)
    return dtype(limits.min if reduction == "max" else limits.max)


def _count_segments(writer: OperationWriter, segments: str) -> str:
    """Returns the number of segments whose numbers ascend."""
    return writer.ragged.add(writer.ragged.largest(segments), 1)


def _segment_mean(writer: OperationWriter, operation: tf.Operation, x: str, segments: str) -> str:
    graph = writer.graph
    segments = graph.cast(segments, np.int64)
    num_segments = _count_segments(writer, segments)
    sums = writer.ragged.reduce_segments(x, segments, num_segments, "add", np.float32(0))
    counts = writer.ragged.count_values(segments, num_segments)
    counts = graph.node("Unsqueeze", graph.cast(counts, np.float32), graph.integers(-1))
    return graph.node("Div", sums, counts)


# Texts.


def _split_texts(
    writer: OperationWriter, operation: tf.Operation, x: str, separator: str
) -> list[str]:
    graph = writer.graph
    text = writer.numbers(separator).item().decode()
    parts, counts = graph.nodes("StringSplit", x, num_outputs=2, delimiter=text)
    # An empty text has one part, which StringSplit leaves out.
    ragged = writer.ragged
    counts = ragged.column(graph.node("Max", counts, ragged.number(1)))
    no_text = graph.constant(np.array("", object))
    last_column = graph.node("Expand", no_text, graph.node("Shape", counts))
    parts = graph.node("Concat", parts, last_column, axis=1)
    columns = ragged.indices(ragged.largest(counts))
    is_part = ragged.is_above(counts, columns)
    indices = _list_indices(writer, is_part)
    return [indices, graph.node("GatherND", parts, indices), graph.node("Shape", is_part)]


# Lists of the results of iterations.


def _reserve_list(writer: OperationWriter, operation: tf.Operation, shape: str, count: str) -> str:
    return writer.graph.empty_sequence(operation.get_attr("element_dtype").as_numpy_dtype)


def _set_item(
    writer: OperationWriter, operation: tf.Operation, items: str, index: str, item: str
) -> str:
    # The items are written in their order.
    return writer.graph.node("SequenceInsert", items, item, index)


def _concat_list(
    writer: OperationWriter, operation: tf.Operation, items: str, *others: str
) -> list[str]:
    return [writer.graph.node("ConcatFromSequence", items, axis=0), ""]


# Integers and bools.


def _floor_div(writer: OperationWriter, operation: tf.Operation, a: str, b: str) -> str:
    graph = writer.graph
    # Div of ONNX rounds towards 0. The remainder has the sign of the divisor.
    multiple = graph.node("Sub", a, graph.node("Mod", a, b))
    return graph.node("Div", multiple, b)


def _where(writer: OperationWriter, operation: tf.Operation, x: str) -> str:
    return _list_indices(writer, x)


def _one_hot(
    writer: OperationWriter, operation: tf.Operation, x: str, depth: str, on: str, off: str
) -> str:
    graph = writer.graph
    # OneHot of ONNX counts negative indices from the end.
    columns = graph.node("Range", graph.constant(np.int32(0)), depth, graph.constant(np.int32(1)))
    rows = graph.node("Unsqueeze", x, graph.integers(-1))
    is_on = graph.node("Equal", rows, columns)
    return writer.select(operation.outputs[0].dtype, is_on, on, off)


RAGGED_OPERATIONS: dict[str, Write] = {
    "DenseBincount": _bin_count,
    "FloorDiv": _floor_div,
    "OneHot": _one_hot,
    "RaggedGather": _gather_rows,
    "RaggedRange": _range,
    "RaggedTensorToTensor": _to_tensor,
    "SegmentMax": _reduce("max"),
    "SegmentMean": _segment_mean,
    "StringSplitV2": _split_texts,
    "TensorListConcatV2": _concat_list,
    "TensorListReserve": _reserve_list,
    "TensorListSetItem": _set_item,
    "UnsortedSegmentMax": _reduce("max"),
    "UnsortedSegmentMin": _reduce("min"),
    "UnsortedSegmentSum": _reduce("add"),
    "Where": _where,
}
