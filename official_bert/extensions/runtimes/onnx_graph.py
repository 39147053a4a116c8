"""Builds an ONNX graph: constants, nodes and their names, and the model of a file.

The graph evaluates nodes whose inputs are all constants. It writes each constant once, and no node
that the outputs don't need.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from official_bert.extensions.runtimes.runtimes import import_runtime
from official_bert.io.errors import InputError
from official_bert.version import __version__

if TYPE_CHECKING:
    import onnx

# The first opset with Gelu; onnxruntime 1.17 and newer read it.
OPSET = 20
_IR_VERSION = 9
_MAX_BYTES = 2**31 - 1  # of a file of protobuf


class OnnxGraph:
    """A graph that grows by one node at a time. Values are known by their names."""

    def __init__(self):
        """Makes an empty graph.

        Raises:
            RuntimeMissingError: onnx is not installed.
        """
        self._onnx = import_runtime("onnx")
        self._evaluator = import_runtime("onnx.reference").ReferenceEvaluator
        self._nodes: list[onnx.NodeProto] = []
        self._arrays: dict[str, np.ndarray] = {}
        self._names: dict[tuple, str] = {}
        self._scope = ""
        self._counts: dict[str, int] = {}

    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """A context in which the names of constants and nodes begin with a name.

        Args:
            name: the name of a part of the model, such as layer_0.
        """
        outer = self._scope
        self._scope = f"{outer}{name}/"
        try:
            yield
        finally:
            self._scope = outer

    def _make_name(self, stem: str) -> str:
        """Returns a name that no other value has."""
        name = f"{self._scope}{stem}"
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        return f"{name}_{count}" if count else name

    def constant(self, values: Any, name: str = "constant") -> str:
        """Add a constant, or return the name of an equal one.

        Args:
            values: an array, or numbers that numpy makes an array of. Texts are an object array.
            name: the last part of its name.

        Returns:
            The name of the value.
        """
        array = np.asarray(values)
        content = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        key = (array.dtype.str, array.shape, hashlib.sha256(content).digest())
        if key not in self._names:
            self._names[key] = self._make_name(name)
            self._arrays[self._names[key]] = array
        return self._names[key]

    def integers(self, *values: int) -> str:
        """Add a vector of integers, such as axes or a shape.

        Args:
            *values: the integers.

        Returns:
            The name of int64[number of values].
        """
        return self.constant(np.array(values, np.int64))

    def array(self, name: str) -> np.ndarray | None:
        """Return the values of a constant; None for other values.

        Args:
            name: the name of the value.
        """
        return self._arrays.get(name)

    def node(self, operation: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output.

        Args:
            operation: the name of the operation in ONNX.
            *inputs: the names of its inputs; "" for an absent one.
            **attributes: the attributes of the operation.

        Returns:
            The name of its output.
        """
        return self.nodes(operation, *inputs, num_outputs=1, **attributes)[0]

    def nodes(self, operation: str, *inputs: str, num_outputs: int, **attributes: Any) -> list[str]:
        """Add a node with some outputs.

        Args:
            operation: the name of the operation in ONNX.
            *inputs: the names of its inputs; "" for an absent one.
            num_outputs: the number of its outputs.
            **attributes: the attributes of the operation.

        Returns:
            The names of its outputs.
        """
        names = [self._make_name(operation) for _ in range(num_outputs)]
        node = self._onnx.helper.make_node(operation, inputs, names, name=names[0], **attributes)
        if inputs and all(name in self._arrays for name in inputs if name):
            self._evaluate(node)
        else:
            self._nodes.append(node)
        return names

    def _evaluate(self, node: onnx.NodeProto) -> None:
        """Computes the outputs of a node with constant inputs."""
        helper = self._onnx.helper
        unknown = self._onnx.TensorProto.UNDEFINED
        inputs = {name: self._arrays[name] for name in node.input if name}
        graph = helper.make_graph(
            [node],
            "constants",
            [helper.make_tensor_value_info(name, unknown, None) for name in inputs],
            [helper.make_tensor_value_info(name, unknown, None) for name in node.output],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        outputs = self._evaluator(model).run(None, inputs)
        for name, values in zip(node.output, outputs, strict=True):
            self._arrays[name] = np.asarray(values)

    def cast(self, x: str, dtype: Any) -> str:
        """Add a conversion to another type.

        Args:
            x: the name of the value.
            dtype: a type of numpy.

        Returns:
            The name of the converted value.
        """
        onnx_type = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.node("Cast", x, to=onnx_type)

    def model(
        self,
        inputs: Mapping[str, Sequence[str]],
        outputs: Mapping[str, tuple[str, Any, Sequence[str | int] | None]],
        metadata: Mapping[str, str],
    ) -> bytes:
        """Return the content of the file.

        Args:
            inputs: name -> the names of the dimensions of an int32 input.
            outputs: name -> the value, its type of numpy (object for texts), and its dimensions, or
                None if their number is open.
            metadata: the fields of the file by name.

        Raises:
            InputError: the file would have more than 2 GB.
        """
        helper = self._onnx.helper
        output_infos = []
        for name, (value, dtype, dimensions) in outputs.items():
            self._nodes.append(helper.make_node("Identity", [value], [name], name=name))
            onnx_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            output_infos.append(helper.make_tensor_value_info(name, onnx_type, dimensions))
        int32 = self._onnx.TensorProto.INT32
        nodes, names = self._list_needed(outputs)
        graph = helper.make_graph(
            nodes,
            metadata.get("signature", "model"),
            [helper.make_tensor_value_info(name, int32, dims) for name, dims in inputs.items()],
            output_infos,
            [self._make_tensor(name) for name in names],
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=_IR_VERSION,
            producer_name="official_bert",
            producer_version=__version__,
        )
        helper.set_model_props(model, dict(metadata))
        if (size := model.ByteSize()) > _MAX_BYTES:
            raise InputError(
                f"--export_format=onnx: the file would have {size / 1e9:.1f} GB, and its format "
                "allows 2 GB; give --dtype=float16 or int8, or --export_format=saved_model"
            )
        return model.SerializeToString()

    def _list_needed(self, outputs: Mapping[str, Any]) -> tuple[list[onnx.NodeProto], list[str]]:
        """Returns the nodes that compute the outputs, and the names of the constants they read."""
        needed = dict.fromkeys(outputs)
        nodes = []
        for node in reversed(self._nodes):
            if not needed.keys().isdisjoint(node.output):
                nodes.append(node)
                needed |= dict.fromkeys(node.input)
        return nodes[::-1], [name for name in self._arrays if name in needed]

    def _make_tensor(self, name: str) -> onnx.TensorProto:
        values = np.ascontiguousarray(self._arrays[name])
        # `ascontiguousarray` makes a vector of a number.
        shaped = values.reshape(self._arrays[name].shape)
        return self._onnx.numpy_helper.from_array(shaped, name)
