"""Matrix products and look-ups in an ONNX graph, with weights of 32, 16 or 8 bits.

`PRODUCTS` has a class for each type of the weights. Everything between the products is float32.
"""

from __future__ import annotations

import numpy as np

from official_bert.extensions.onnx_files.onnx_graph import OnnxGraph
from official_bert.options.shared import FLOAT16, FLOAT32, INT8, INT8_WEIGHTS

# Smaller kernels, as of most heads, save nothing in 8 bits.
_MIN_QUANTIZED_SIZE = 4096
_MAX_INTEGER = 127
# Processors without VNNI add the products of two neighbours in 16 bits: 255 * 128 is the largest
# sum that fits. Rounding may add 1 to the sum of two weights.
_MAX_PAIR = 127
# Inputs of products are unsigned. Where an activation is never below some small number, the zero
# point leaves most of the range to larger values.
_ZERO_POINT = 128
_ACTIVATION_ZERO_POINT = 16
_SMALLEST_SCALE = 1e-9


class OnnxProducts:
    """Products and look-ups with weights of float32."""

    def __init__(self, graph: OnnxGraph):
        """Writes into a graph.

        Args:
            graph: the graph.
        """
        self._graph = graph

    def note_lower_bound(self, x: str, lower_bound: float) -> None:
        """Record that no element of a value is below a number, which is not positive.

        Args:
            x: the name of the value.
            lower_bound: the number.
        """

    def multiply(self, x: str, kernel: np.ndarray) -> str:
        """Add the product of a value and a kernel.

        Args:
            x: float32[..., in].
            kernel: float32[in, out].

        Returns:
            float32[..., out].
        """
        kernel_name = self._graph.constant(kernel, "kernel")
        return self._graph.node("MatMul", x, kernel_name)

    def multiply_values(self, a: str, b: str) -> str:
        """Add the product of two values that are computed.

        Args:
            a: float32[..., rows, in].
            b: float32[..., in, columns].

        Returns:
            float32[..., rows, columns].
        """
        return self._graph.node("MatMul", a, b)

    def look_up(self, table: np.ndarray, ids: str) -> str:
        """Add a look-up of rows.

        Args:
            table: float32[rows, width].
            ids: the numbers of the rows, int32[...].

        Returns:
            float32[..., width].
        """
        table_name = self._graph.constant(table, "table")
        return self._graph.node("Gather", table_name, ids)


class _Float16Products(OnnxProducts):
    """Products of float16, of which the results are float32."""

    def multiply(self, x: str, kernel: np.ndarray) -> str:
        halves = kernel.astype(np.float16)
        kernel_name = self._graph.constant(halves, "kernel")
        x = self._graph.cast(x, np.float16)
        return self._multiply_halves(x, kernel_name)

    def multiply_values(self, a: str, b: str) -> str:
        a = self._graph.cast(a, np.float16)
        b = self._graph.cast(b, np.float16)
        return self._multiply_halves(a, b)

    def _multiply_halves(self, a: str, b: str) -> str:
        product = self._graph.node("MatMul", a, b)
        return self._graph.cast(product, np.float32)

    def look_up(self, table: np.ndarray, ids: str) -> str:
        rows = super().look_up(table.astype(np.float16), ids)
        return self._graph.cast(rows, np.float32)


class _Int8Tables(OnnxProducts):
    """Look-ups in tables of 8 bits, with a scale for each row."""

    def look_up(self, table: np.ndarray, ids: str) -> str:
        if table.size < _MIN_QUANTIZED_SIZE:
            return super().look_up(table, ids)
        graph = self._graph
        integers, scales = _quantize_table(table)
        rows = super().look_up(integers, ids)
        row_scales = super().look_up(scales, ids)
        floats = graph.cast(rows, np.float32)
        return graph.node("Mul", floats, row_scales)


class _Int8WeightProducts(_Int8Tables):
    """Products with kernels of 8 bits, with a scale for each output.

    The graph converts the kernels to float32. onnxruntime does that once, when it opens the file.
    OpenVINO multiplies 8 bits.
    """

    def multiply(self, x: str, kernel: np.ndarray) -> str:
        if kernel.size < _MIN_QUANTIZED_SIZE:
            return super().multiply(x, kernel)
        graph = self._graph
        largest = np.abs(kernel).max(axis=0)
        integers, scales = _round(kernel, largest / _MAX_INTEGER)
        kernel_name = graph.constant(integers, "kernel")
        scales_name = graph.constant(scales, "scales")
        float_type = graph.onnx_type(np.float32)
        floats = graph.unfolded_node("Cast", kernel_name, to=float_type)
        floats = graph.unfolded_node("Mul", floats, scales_name)
        return graph.node("MatMul", x, floats)


class _Int8Products(_Int8Tables):
    """Products of 8 bits, with a scale for each output of a kernel and for each row of the input.

    The scales of the input are computed at run time, because each token has another range.
    """

    def __init__(self, graph: OnnxGraph):
        super().__init__(graph)
        self._lower_bounds: dict[str, float] = {}
        # A value of a block cannot be read outside of it.
        self._quantized: dict[tuple[str, str], tuple[str, str, str]] = {}
        self._ones: dict[str, str] = {}

    def note_lower_bound(self, x: str, lower_bound: float) -> None:
        self._lower_bounds[x] = lower_bound

    def multiply(self, x: str, kernel: np.ndarray) -> str:
        if kernel.size < _MIN_QUANTIZED_SIZE:
            return super().multiply(x, kernel)
        graph = self._graph
        # Several products, as of query and key, have one input.
        key = (graph.block, x)
        if key not in self._quantized:
            lower_bound = self._lower_bounds.get(x)
            width = kernel.shape[0]
            self._quantized[key] = self._quantize_rows(x, width, lower_bound)
        rows, row_scales, zero_point = self._quantized[key]

        integers, scales = _quantize_kernel(kernel)
        kernel_name = graph.constant(integers, "kernel")
        sums = graph.node("MatMulInteger", rows, kernel_name, zero_point)
        products = graph.cast(sums, np.float32)
        column_scales = graph.constant(scales, "scales")
        column_scales = graph.node("Mul", self._write_one(x), column_scales)
        products = graph.node("Mul", products, column_scales)
        return graph.node("Mul", products, row_scales)

    def _write_one(self, x: str) -> str:
        """Returns 1.0, which is computed from the size of the batch.

        onnxruntime makes one operation of a product, its conversion to float and its scales, if
        a scale is not a constant.
        """
        graph = self._graph
        if graph.block not in self._ones:
            one = graph.integers(1)
            size = graph.node("Shape", x, start=0, end=1)
            size = graph.node("Min", size, one)
            size = graph.node("Max", size, one)
            number = graph.node("Squeeze", size, graph.integers(0))
            self._ones[graph.block] = graph.cast(number, np.float32)
        return self._ones[graph.block]

    def _quantize_rows(self, x: str, width: int, lower_bound: float | None) -> tuple[str, str, str]:
        """Returns a value as uint8[..., width], its scales, float32[..., 1], and its zero point."""
        graph = self._graph
        last_axis = graph.integers(-1)
        if lower_bound is None:
            zero_point = _ZERO_POINT
            smallest_scale = _SMALLEST_SCALE
            sizes = graph.node("Abs", x)
        else:
            zero_point = _ACTIVATION_ZERO_POINT
            smallest_scale = max(_SMALLEST_SCALE, -lower_bound / zero_point)
            sizes = x
        largest = graph.node("ReduceMax", sizes, last_axis)
        largest_integer = np.float32(255 - zero_point)
        scales = graph.node("Div", largest, graph.constant(largest_integer))
        smallest = graph.constant(np.float32(smallest_scale))
        scales = graph.node("Max", scales, smallest)

        # QuantizeLinear reads a matrix, and vectors of scales and zero points.
        flat_scales = graph.node("Reshape", scales, last_axis)
        num_rows = graph.node("Shape", flat_scales)
        zero_point_name = graph.constant(np.uint8(zero_point))
        zero_points = graph.node("Expand", zero_point_name, num_rows)
        matrix_shape = graph.integers(-1, width)
        matrix = graph.node("Reshape", x, matrix_shape)
        integers = graph.node("QuantizeLinear", matrix, flat_scales, zero_points, axis=0)
        shape = graph.node("Shape", x)
        rows = graph.node("Reshape", integers, shape)
        return rows, scales, zero_point_name


def _quantize_kernel(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns int8 like a kernel, and the scale of each column, float32[out]."""
    sizes = np.abs(kernel)
    first_sizes = sizes[: len(kernel) // 2 * 2 : 2]
    pairs = first_sizes + sizes[1::2]
    largest_pair = pairs.max(axis=0, initial=0.0)
    scales = np.maximum(sizes.max(axis=0) / _MAX_INTEGER, largest_pair / _MAX_PAIR)
    return _round(kernel, scales)


def _quantize_table(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns int8 like a table of embeddings, and the scale of each row, float32[rows, 1]."""
    sizes = np.abs(table)
    largest = sizes.max(axis=1, keepdims=True)
    return _round(table, largest / _MAX_INTEGER)


def _round(values: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scales = np.maximum(scales, _SMALLEST_SCALE)
    scales = scales.astype(np.float32)
    integers = np.rint(values / scales)
    return integers.astype(np.int8), scales


# The type of the weights -> what writes their products.
PRODUCTS = {
    FLOAT32: OnnxProducts,
    FLOAT16: _Float16Products,
    INT8: _Int8Products,
    INT8_WEIGHTS: _Int8WeightProducts,
}
