"""Matrix products and look-ups in an ONNX graph, with weights of 32, 16 or 8 bits.

`PRODUCTS` has a class for each type of the weights. Everything between the products is float32.
"""

from __future__ import annotations

import numpy as np

from official_bert.extensions.runtimes.onnx_graph import OnnxGraph
from official_bert.extensions.runtimes.options import FLOAT16, INT8
from official_bert.options.shared import FLOAT32

# Smaller kernels, as of most heads, save nothing in 8 bits.
_MIN_QUANTIZED_SIZE = 4096
# Weights have 7 of the 8 bits. Processors without VNNI add two products of 8 bits in 16 bits, and
# 2 * 255 * 64 is the largest sum that fits.
_MAX_WEIGHT = 63
# Inputs of products are unsigned. The zero point of inputs that are never below
# `OnnxProducts.SMALLEST_GELU` leaves most of the range to positive values.
_ZERO_POINT = 128
_GELU_ZERO_POINT = 16
_SMALLEST_SCALE = 1e-9


class OnnxProducts:
    """Products and look-ups with weights of float32.

    Attributes:
        SMALLEST_GELU: the least value that gelu has.
    """

    SMALLEST_GELU = -0.17005

    def __init__(self, graph: OnnxGraph):
        """Writes into a graph.

        Args:
            graph: the graph.
        """
        self._graph = graph

    def multiply(self, x: str, kernel: np.ndarray, lower_bound: float | None = None) -> str:
        """Add the product of a value and a kernel.

        Args:
            x: float32[..., in].
            kernel: float32[in, out].
            lower_bound: a number below which no element of x is; None if there is none.

        Returns:
            float32[..., out].
        """
        return self._graph.node("MatMul", x, self._graph.constant(kernel, "kernel"))

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
        return self._graph.node("Gather", self._graph.constant(table, "table"), ids)


class _Float16Products(OnnxProducts):
    """Products of float16, of which the results are float32."""

    def multiply(self, x: str, kernel: np.ndarray, lower_bound: float | None = None) -> str:
        halves = self._graph.constant(kernel.astype(np.float16), "kernel")
        return self._multiply_halves(self._graph.cast(x, np.float16), halves)

    def multiply_values(self, a: str, b: str) -> str:
        return self._multiply_halves(
            self._graph.cast(a, np.float16), self._graph.cast(b, np.float16)
        )

    def _multiply_halves(self, a: str, b: str) -> str:
        return self._graph.cast(self._graph.node("MatMul", a, b), np.float32)

    def look_up(self, table: np.ndarray, ids: str) -> str:
        rows = super().look_up(table.astype(np.float16), ids)
        return self._graph.cast(rows, np.float32)


class _Int8Products(OnnxProducts):
    """Products of 8 bits, with a scale for each output of a kernel and for each row of the input.

    The scales of the input are computed at run time: each token has another range.
    """

    def __init__(self, graph: OnnxGraph):
        super().__init__(graph)
        self._quantized: dict[str, tuple[str, str, str]] = {}

    def multiply(self, x: str, kernel: np.ndarray, lower_bound: float | None = None) -> str:
        if kernel.size < _MIN_QUANTIZED_SIZE:
            return super().multiply(x, kernel, lower_bound)
        graph = self._graph
        if x not in self._quantized:  # Several products, as of query and key, have one input.
            self._quantized[x] = self._quantize_rows(x, kernel.shape[0], lower_bound)
        rows, row_scales, zero_point = self._quantized[x]
        integers, scales = _quantize(kernel, axis=0)
        sums = graph.node("MatMulInteger", rows, graph.constant(integers, "kernel"), zero_point)
        products = graph.node(
            "Mul", graph.cast(sums, np.float32), graph.constant(scales[0], "scales")
        )
        return graph.node("Mul", products, row_scales)

    def _quantize_rows(
        self, x: str, width: int, lower_bound: float | None
    ) -> tuple[str, str, str]:
        """Returns a value as uint8[..., width], its scales, float32[..., 1], and its zero point."""
        graph = self._graph
        last_axis = graph.integers(-1)
        if lower_bound is None:
            zero_point = _ZERO_POINT
            largest = graph.node("ReduceMax", graph.node("Abs", x), last_axis)
            smallest_scale = _SMALLEST_SCALE
        else:
            zero_point = _GELU_ZERO_POINT
            largest = graph.node("ReduceMax", x, last_axis)
            smallest_scale = -lower_bound / zero_point
        step = graph.constant(np.float32(1 / (255 - zero_point)))
        scales = graph.node(
            "Max", graph.node("Mul", largest, step), graph.constant(np.float32(smallest_scale))
        )
        # QuantizeLinear reads a vector of scales.
        flat_scales = graph.node("Reshape", scales, last_axis)
        zero_points = graph.node(
            "Expand", graph.constant(np.uint8([zero_point])), graph.node("Shape", flat_scales)
        )
        flat = graph.node("Reshape", x, graph.integers(-1, width))
        integers = graph.node("QuantizeLinear", flat, flat_scales, zero_points, axis=0)
        shaped = graph.node("Reshape", integers, graph.node("Shape", x))
        return shaped, scales, graph.constant(np.uint8(zero_point))

    def look_up(self, table: np.ndarray, ids: str) -> str:
        if table.size < _MIN_QUANTIZED_SIZE:
            return super().look_up(table, ids)
        graph = self._graph
        integers, scales = _quantize(table, axis=1, largest_integer=127)
        rows = graph.cast(graph.node("Gather", graph.constant(integers, "table"), ids), np.float32)
        row_scales = graph.node("Gather", graph.constant(scales, "scales"), ids)
        return graph.node("Mul", rows, row_scales)


def _quantize(
    values: np.ndarray, axis: int, largest_integer: int = _MAX_WEIGHT
) -> tuple[np.ndarray, np.ndarray]:
    """Returns int8 like `values`, and the scales, whose size along `axis` is 1."""
    largest = np.abs(values).max(axis=axis, keepdims=True)
    scales = np.maximum(largest / largest_integer, _SMALLEST_SCALE).astype(np.float32)
    return np.rint(values / scales).astype(np.int8), scales


# The type of the weights -> what writes their products.
PRODUCTS = {FLOAT32: OnnxProducts, FLOAT16: _Float16Products, INT8: _Int8Products}
