"""Writes the operations of a TensorFlow graph, such as a head, into an ONNX graph.

`OPERATIONS` has a function for each type of operation. To support another one, add a line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from official_bert.extensions.onnx_files.onnx_graph import OnnxGraph
from official_bert.extensions.onnx_files.onnx_products import OnnxProducts
from official_bert.extensions.onnx_files.onnx_ragged import RaggedWriter
from official_bert.extensions.onnx_files.onnx_ragged_operations import RAGGED_OPERATIONS
from official_bert.io.errors import InputError

_INT64_LIMITS = np.iinfo(np.int64)


class OperationWriter:
    """Writes operations.

    Attributes:
        graph: the graph to write into.
        products: what writes the matrix products.
        ragged: what writes rows of different lengths.
    """

    def __init__(self, graph: OnnxGraph, products: OnnxProducts):
        """Writes into a graph.

        Args:
            graph: the graph.
            products: what writes the matrix products.
        """
        self.graph = graph
        self.products = products
        self.ragged = RaggedWriter(graph)

    def write(self, operation: tf.Operation, inputs: Sequence[str]) -> list[str]:
        """Add the nodes of an operation.

        Args:
            operation: the operation of TensorFlow.
            inputs: the names of its inputs in the graph.

        Returns:
            The names of its outputs.

        Raises:
            InputError: the operation has no ONNX form here.
        """
        write_operation = OPERATIONS.get(operation.type)
        if write_operation is None:
            raise InputError(
                f"--export_format=onnx: the operation {operation.type} of the model "
                f"({operation.name}) has no ONNX form; give --export_format=litert or saved_model"
            )
        outputs = write_operation(self, operation, *inputs)
        return outputs if isinstance(outputs, list) else [outputs]

    def cast_output(self, operation: tf.Operation, value: str, index: int = 0) -> str:
        """Convert a value to the type that an output of an operation has.

        Args:
            operation: the operation of TensorFlow.
            value: the name of the value.
            index: the number of the output.

        Returns:
            The name of the converted value.
        """
        return self.graph.cast(value, operation.outputs[index].dtype.as_numpy_dtype)

    def select(self, dtype: tf.DType, condition: str, x: str, y: str) -> str:
        """Add a choice between values.

        Args:
            dtype: the type of the values.
            condition: bool[...].
            x: the values where the condition is true.
            y: the values where it is false.
        """
        if dtype != tf.bool:
            return self.graph.node("Where", condition, x, y)
        # Where of onnxruntime has no bools.
        first = self.graph.node("And", condition, x)
        second = self.graph.node("And", self.graph.node("Not", condition), y)
        return self.graph.node("Or", first, second)

    def numbers(self, name: str) -> np.ndarray:
        """Return the values of a constant that a node has as an attribute.

        Args:
            name: the name of the value.

        Raises:
            InputError: the value is computed.
        """
        values = self.graph.array(name)
        if values is None:
            raise InputError(
                f"--export_format=onnx: {name} of the model must be a constant for ONNX; give "
                "--export_format=litert or saved_model"
            )
        return values

    def number(self, name: str) -> int:
        """Return the value of a constant with one integer; see `numbers`.

        Args:
            name: the name of the value.
        """
        return int(self.numbers(name))


Write = Callable[..., str | list[str]]


def _node(onnx_type: str) -> Write:
    """Returns a writer of one node with the same inputs."""

    def write(writer: OperationWriter, operation: tf.Operation, *inputs: str) -> str:
        return writer.graph.node(onnx_type, *inputs)

    return write


def _copy(writer: OperationWriter, operation: tf.Operation, *inputs: str) -> list[str]:
    return list(inputs)


def _constant(writer: OperationWriter, operation: tf.Operation) -> str:
    return writer.graph.constant(tf.make_ndarray(operation.get_attr("value")))


def _cast(writer: OperationWriter, operation: tf.Operation, x: str) -> str:
    return writer.cast_output(operation, x)


def _square(writer: OperationWriter, operation: tf.Operation, x: str) -> str:
    return writer.graph.node("Mul", x, x)


def _squared_difference(writer: OperationWriter, operation: tf.Operation, a: str, b: str) -> str:
    difference = writer.graph.node("Sub", a, b)
    return writer.graph.node("Mul", difference, difference)


def _rsqrt(writer: OperationWriter, operation: tf.Operation, x: str) -> str:
    return writer.graph.node("Reciprocal", writer.graph.node("Sqrt", x))


def _log1p(writer: OperationWriter, operation: tf.Operation, x: str) -> str:
    one = writer.graph.constant(np.float32(1))
    shifted = writer.graph.node("Add", x, one)
    return writer.graph.node("Log", shifted)


def _not_equal(writer: OperationWriter, operation: tf.Operation, a: str, b: str) -> str:
    is_equal = writer.graph.node("Equal", a, b)
    return writer.graph.node("Not", is_equal)


def _is_finite(writer: OperationWriter, operation: tf.Operation, x: str) -> str:
    graph = writer.graph
    is_infinite = graph.node("IsInf", x)
    is_nan = graph.node("IsNaN", x)
    is_special = graph.node("Or", is_infinite, is_nan)
    return graph.node("Not", is_special)


def _div_no_nan(writer: OperationWriter, operation: tf.Operation, a: str, b: str) -> str:
    graph = writer.graph
    zero = graph.constant(np.float32(0))
    is_zero = graph.node("Equal", b, zero)
    quotient = graph.node("Div", a, b)
    return graph.node("Where", is_zero, zero, quotient)


def _select(writer: OperationWriter, operation: tf.Operation, *inputs: str) -> str:
    return writer.select(operation.outputs[0].dtype, *inputs)


def _softmax(onnx_type: str) -> Write:
    def write(writer: OperationWriter, operation: tf.Operation, x: str) -> str:
        return writer.graph.node(onnx_type, x, axis=-1)

    return write


def _reduce(onnx_type: str) -> Write:
    """Returns a writer of a sum, a mean or the like over axes."""

    def write(writer: OperationWriter, operation: tf.Operation, x: str, axes: str) -> str:
        graph = writer.graph
        axes = graph.cast(axes, np.int64)
        axes = graph.node("Reshape", axes, graph.integers(-1))
        keepdims = int(operation.get_attr("keep_dims"))
        return graph.node(onnx_type, x, axes, keepdims=keepdims)

    return write


def _reduce_bools(onnx_type: str) -> Write:
    def write(writer: OperationWriter, operation: tf.Operation, x: str, axes: str) -> str:
        integers = writer.graph.cast(x, np.int32)
        reduced = _reduce(onnx_type)(writer, operation, integers, axes)
        return writer.graph.cast(str(reduced), np.bool_)

    return write


def _arg_max(writer: OperationWriter, operation: tf.Operation, x: str, axis: str) -> str:
    indices = writer.graph.node("ArgMax", x, axis=writer.number(axis), keepdims=0)
    return writer.cast_output(operation, indices)


def _top_k(writer: OperationWriter, operation: tf.Operation, x: str, k: str) -> list[str]:
    graph = writer.graph
    count = graph.cast(k, np.int64)
    count = graph.node("Reshape", count, graph.integers(1))
    values, indices = graph.nodes("TopK", x, count, num_outputs=2, axis=-1)
    return [values, writer.cast_output(operation, indices, 1)]


def _mat_mul(transpose_a: str, transpose_b: str) -> Write:
    """Returns a writer of a product, from the names of the attributes that transpose its inputs."""

    def write(writer: OperationWriter, operation: tf.Operation, a: str, b: str) -> str:
        if operation.get_attr(transpose_a):
            a = _transpose_matrices(writer, a, operation.inputs[0].shape.rank)
        if operation.get_attr(transpose_b):
            b = _transpose_matrices(writer, b, operation.inputs[1].shape.rank)
        kernel = writer.graph.array(b)
        if kernel is not None and kernel.ndim == 2 and kernel.dtype == np.float32:
            return writer.products.multiply(a, kernel)
        return writer.graph.node("MatMul", a, b)

    return write


def _transpose_matrices(writer: OperationWriter, x: str, rank: int) -> str:
    return writer.graph.node("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])


def _transpose(writer: OperationWriter, operation: tf.Operation, x: str, axes: str) -> str:
    return writer.graph.node("Transpose", x, perm=writer.numbers(axes).tolist())


def _shape(writer: OperationWriter, operation: tf.Operation, x: str) -> str:
    shape = writer.graph.node("Shape", x)
    return writer.cast_output(operation, shape)


def _size(writer: OperationWriter, operation: tf.Operation, x: str) -> str:
    size = writer.graph.node("Size", x)
    return writer.cast_output(operation, size)


def _with_int64(onnx_type: str) -> Write:
    """Returns a writer of a node whose second input is a shape or axes, int64 in ONNX."""

    def write(writer: OperationWriter, operation: tf.Operation, x: str, sizes: str) -> str:
        return writer.graph.node(onnx_type, x, writer.graph.cast(sizes, np.int64))

    return write


def _reshape(writer: OperationWriter, operation: tf.Operation, x: str, shape: str) -> str:
    shape = writer.graph.cast(shape, np.int64)
    # Without `allowzero`, 0 is the size of the input.
    return writer.graph.node("Reshape", x, shape, allowzero=1)


def _expand_dims(writer: OperationWriter, operation: tf.Operation, x: str, axis: str) -> str:
    graph = writer.graph
    axis = graph.cast(axis, np.int64)
    axes = graph.node("Reshape", axis, graph.integers(1))
    return graph.node("Unsqueeze", x, axes)


def _squeeze(writer: OperationWriter, operation: tf.Operation, x: str) -> str:
    axes = operation.get_attr("squeeze_dims")
    if not axes:
        return writer.graph.node("Squeeze", x)
    return writer.graph.node("Squeeze", x, writer.graph.integers(*axes))


def _pack(writer: OperationWriter, operation: tf.Operation, *values: str) -> str:
    graph = writer.graph
    axis = operation.get_attr("axis")
    parts = [graph.node("Unsqueeze", value, graph.integers(axis)) for value in values]
    return graph.node("Concat", *parts, axis=axis)


def _unpack(writer: OperationWriter, operation: tf.Operation, x: str) -> list[str]:
    graph = writer.graph
    axis = operation.get_attr("axis")
    return [
        graph.node("Gather", x, graph.constant(np.int64(index)), axis=axis)
        for index in range(operation.get_attr("num"))
    ]


def _concat(writer: OperationWriter, operation: tf.Operation, *inputs: str) -> str:
    *values, axis = inputs
    return writer.graph.node("Concat", *values, axis=writer.number(axis))


def _split(writer: OperationWriter, operation: tf.Operation, axis: str, x: str) -> list[str]:
    count = operation.get_attr("num_split")
    return writer.graph.nodes("Split", x, num_outputs=count, axis=writer.number(axis))


def _fill(writer: OperationWriter, operation: tf.Operation, shape: str, value: str) -> str:
    return writer.graph.node("Expand", value, writer.graph.cast(shape, np.int64))


def _filled_like(number: int) -> Write:
    def write(writer: OperationWriter, operation: tf.Operation, x: str) -> str:
        value = np.array(number, operation.outputs[0].dtype.as_numpy_dtype)
        value_name = writer.graph.constant(value)
        shape = writer.graph.node("Shape", x)
        return writer.graph.node("Expand", value_name, shape)

    return write


def _pad(
    writer: OperationWriter, operation: tf.Operation, x: str, paddings: str, value: str = ""
) -> str:
    graph = writer.graph
    # TensorFlow has a row for each axis; ONNX has all beginnings and then all ends.
    paddings = graph.cast(paddings, np.int64)
    columns = graph.node("Transpose", paddings, perm=[1, 0])
    sizes = graph.node("Reshape", columns, graph.integers(-1))
    return graph.node("Pad", x, sizes, value)


def _gather(
    writer: OperationWriter, operation: tf.Operation, x: str, indices: str, axis: str
) -> str:
    batch_dims = operation.get_attr("batch_dims")
    axis_number = writer.number(axis)
    if not batch_dims:
        return writer.graph.node("Gather", x, indices, axis=axis_number)
    ranks = [tensor.shape.rank for tensor in operation.inputs[:2]]
    if ranks == [batch_dims + 1, batch_dims]:
        last_axis = writer.graph.integers(-1)
        rows = writer.graph.node("Unsqueeze", indices, last_axis)
        values = writer.graph.node("GatherElements", x, rows, axis=axis_number)
        return writer.graph.node("Squeeze", values, last_axis)
    if ranks != [batch_dims + 1] * 2:
        raise InputError(
            f"--export_format=onnx: {operation.name} gathers rows of batches, which has no ONNX "
            "form here; give --export_format=litert or saved_model"
        )
    return writer.graph.node("GatherElements", x, indices, axis=axis_number)


def _gather_nd(writer: OperationWriter, operation: tf.Operation, x: str, indices: str) -> str:
    return writer.graph.node("GatherND", x, writer.graph.cast(indices, np.int64))


def _scatter(
    writer: OperationWriter, operation: tf.Operation, x: str, indices: str, updates: str
) -> str:
    return writer.graph.node("ScatterND", x, writer.graph.cast(indices, np.int64), updates)


def _cumsum(writer: OperationWriter, operation: tf.Operation, x: str, axis: str) -> str:
    attributes = {name: int(operation.get_attr(name)) for name in ("exclusive", "reverse")}
    return writer.graph.node("CumSum", x, writer.graph.cast(axis, np.int64), **attributes)


def _strided_slice(
    writer: OperationWriter,
    operation: tf.Operation,
    x: str,
    begin: str,
    end: str,
    strides: str,
) -> str:
    """Writes a slice as in Python, such as x[:, None, 1:].

    Each item of the three vectors belongs to an item of the slice. Bits of masks tell whether it is
    an ellipsis, a new axis, one position, or lacks its begin or end.
    """
    graph = writer.graph
    begin = graph.cast(begin, np.int64)
    end = graph.cast(end, np.int64)
    strides = graph.cast(strides, np.int64)
    step_numbers = writer.numbers(strides)
    rank = operation.inputs[0].shape.rank
    is_new = _bits(operation, "new_axis_mask", len(step_numbers))
    is_ellipsis = _bits(operation, "ellipsis_mask", len(step_numbers))
    is_position = _bits(operation, "shrink_axis_mask", len(step_numbers))
    lacks_begin = _bits(operation, "begin_mask", len(step_numbers))
    lacks_end = _bits(operation, "end_mask", len(step_numbers))
    num_sliced = sum(not new and not dots for new, dots in zip(is_new, is_ellipsis, strict=True))

    # Find the axis of each item in the input and in the result.
    axis = result_axis = 0
    items, axes, new_axes, dropped_axes = [], [], [], []
    for index in range(len(step_numbers)):
        if is_ellipsis[index]:
            axis += rank - num_sliced
            result_axis += rank - num_sliced
        elif is_new[index]:
            new_axes.append(result_axis)
            result_axis += 1
        else:
            items.append(index)
            axes.append(axis)
            if is_position[index]:
                dropped_axes.append(axis)
            else:
                result_axis += 1
            axis += 1

    # Slice, and then drop and add axes.
    if items:
        steps = step_numbers[items]
        chosen = graph.integers(*items)
        starts = graph.node("Gather", begin, chosen)
        ends = graph.node("Gather", end, chosen)
        positions = graph.constant(is_position[items])
        next_positions = graph.node("Add", starts, graph.integers(1))
        # The end behind the last position, -1, has no number.
        is_last = graph.node("Equal", starts, graph.integers(-1))
        next_positions = graph.node(
            "Where", is_last, graph.integers(_INT64_LIMITS.max), next_positions
        )
        ends = graph.node("Where", positions, next_positions, ends)
        first = np.where(steps > 0, 0, _INT64_LIMITS.max)
        last = np.where(steps > 0, _INT64_LIMITS.max, _INT64_LIMITS.min)
        has_no_begin = graph.constant(lacks_begin[items] & ~is_position[items])
        has_no_end = graph.constant(lacks_end[items] & ~is_position[items])
        starts = graph.node("Where", has_no_begin, graph.constant(first), starts)
        ends = graph.node("Where", has_no_end, graph.constant(last), ends)
        x = graph.node("Slice", x, starts, ends, graph.integers(*axes), graph.constant(steps))
    if dropped_axes:
        x = graph.node("Squeeze", x, graph.integers(*dropped_axes))
    if new_axes:
        x = graph.node("Unsqueeze", x, graph.integers(*new_axes))
    return x


def _bits(operation: tf.Operation, mask: str, count: int) -> np.ndarray:
    """Returns the bits of an attribute of a slice, bool[count]."""
    return np.array([bool(operation.get_attr(mask) >> index & 1) for index in range(count)])


_SAME_INPUTS = {
    "Add": "Add",
    "AddV2": "Add",
    "BiasAdd": "Add",
    "Sub": "Sub",
    "Mul": "Mul",
    "RealDiv": "Div",
    "Pow": "Pow",
    "Maximum": "Max",
    "Minimum": "Min",
    "Equal": "Equal",
    "Greater": "Greater",
    "GreaterEqual": "GreaterOrEqual",
    "Less": "Less",
    "LessEqual": "LessOrEqual",
    "LogicalAnd": "And",
    "LogicalOr": "Or",
    "LogicalNot": "Not",
    "Neg": "Neg",
    "Abs": "Abs",
    "Exp": "Exp",
    "Log": "Log",
    "Sqrt": "Sqrt",
    "Erf": "Erf",
    "Tanh": "Tanh",
    "Sigmoid": "Sigmoid",
    "Relu": "Relu",
    "Softplus": "Softplus",
    "Floor": "Floor",
    "FloorMod": "Mod",
    "Round": "Round",
    "Sign": "Sign",
    "Range": "Range",
}
# The type of an operation of TensorFlow -> what writes it.
OPERATIONS: dict[str, Write] = {
    **RAGGED_OPERATIONS,
    **{name: _node(onnx_type) for name, onnx_type in _SAME_INPUTS.items()},
    **dict.fromkeys(
        ("EnsureShape", "Identity", "IdentityN", "StopGradient", "PreventGradient"), _copy
    ),
    "All": _reduce_bools("ReduceMin"),
    "Any": _reduce_bools("ReduceMax"),
    "ArgMax": _arg_max,
    "BatchMatMul": _mat_mul("adj_x", "adj_y"),
    "BatchMatMulV2": _mat_mul("adj_x", "adj_y"),
    "BroadcastTo": _with_int64("Expand"),
    "Cast": _cast,
    "ConcatV2": _concat,
    "Const": _constant,
    "Cumsum": _cumsum,
    "DivNoNan": _div_no_nan,
    "ExpandDims": _expand_dims,
    "Fill": _fill,
    "GatherNd": _gather_nd,
    "GatherV2": _gather,
    "IsFinite": _is_finite,
    "Log1p": _log1p,
    "LogSoftmax": _softmax("LogSoftmax"),
    "MatMul": _mat_mul("transpose_a", "transpose_b"),
    "Max": _reduce("ReduceMax"),
    "Mean": _reduce("ReduceMean"),
    "Min": _reduce("ReduceMin"),
    "NotEqual": _not_equal,
    "OnesLike": _filled_like(1),
    "Pack": _pack,
    "Pad": _pad,
    "PadV2": _pad,
    "Prod": _reduce("ReduceProd"),
    "Reshape": _reshape,
    "Rsqrt": _rsqrt,
    "Select": _select,
    "SelectV2": _select,
    "Shape": _shape,
    "Size": _size,
    "Softmax": _softmax("Softmax"),
    "Split": _split,
    "Square": _square,
    "SquaredDifference": _squared_difference,
    "Squeeze": _squeeze,
    "StridedSlice": _strided_slice,
    "Sum": _reduce("ReduceSum"),
    "TensorScatterUpdate": _scatter,
    "Tile": _with_int64("Tile"),
    "TopKV2": _top_k,
    "Transpose": _transpose,
    "Unpack": _unpack,
    "ZerosLike": _filled_like(0),
}
