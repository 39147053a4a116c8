"""Builds an ONNX graph: constants, nodes and their names, and the model of a file.

The graph evaluates nodes whose inputs are all constants. It writes each constant once, and no node
that the outputs don't need.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from official_bert.io.errors import InputError
from official_bert.serving.export_format import import_runtime
from official_bert.version import __version__

if TYPE_CHECKING:
    import onnx  # pyright: ignore[reportMissingImports]

# The first opset with Gelu; onnxruntime 1.17 and newer read it.
OPSET = 20
# The versions of the further sets of operations that a graph with texts needs.
_DOMAIN_VERSIONS = {"ai.onnx.ml": 4, "com.microsoft": 1}
_IR_VERSION = 9
_MAX_BYTES = 2**31 - 1  # of a file of protobuf


class BlockValue(NamedTuple):
    """A value that enters or leaves a block: the body of a loop, or a branch.

    Attributes:
        name: the name of the value. Before a loop, it is the one of the first iteration.
        dtype: its type in numpy; object for texts.
        is_sequence: whether it is a sequence of tensors of this type.
    """

    name: str
    dtype: Any
    is_sequence: bool = False


class OnnxGraph:
    """A graph that grows by one node at a time. Values are known by their names.

    Attributes:
        block: the loop body or the branch that the next node is added to; "" outside of these. A
            value of a block cannot be read outside of it.
        sequence_dtypes: the types of the tensors of empty sequences by the names of the sequences.
    """

    def __init__(self):
        """Makes an empty graph.

        Raises:
            RuntimeMissingError: onnx is not installed.
        """
        self.block = ""
        self.sequence_dtypes: dict[str, Any] = {}
        self._onnx = import_runtime("onnx")
        self._evaluator = import_runtime("onnx.reference").ReferenceEvaluator
        self._nodes: list[onnx.NodeProto] = []
        self._arrays: dict[str, np.ndarray] = {}
        self._names: dict[tuple, str] = {}
        self._scope = ""
        self._counts: dict[str, int] = {}
        self._domains: set[str] = set()

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
            **attributes: the attributes of the operation, and `domain` if it is not in ONNX's main
                set of operations.

        Returns:
            The names of its outputs.
        """
        names = [self._make_name(operation) for _ in range(num_outputs)]
        if "domain" in attributes:
            self._domains.add(attributes["domain"])
        node = self._onnx.helper.make_node(operation, inputs, names, name=names[0], **attributes)
        if inputs and all(name in self._arrays for name in inputs if name):
            self._evaluate(node)
        else:
            self._nodes.append(node)
        return names

    def unfolded_node(self, operation: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, which the file has even if its inputs are constants.

        Args:
            operation: the name of the operation in ONNX.
            *inputs: the names of its inputs.
            **attributes: the attributes of the operation.

        Returns:
            The name of its output.
        """
        name = self._make_name(operation)
        self._add_node(operation, inputs, [name], **attributes)
        return name

    def onnx_type(self, dtype: Any) -> int:
        """Return the number that ONNX has for a type.

        Args:
            dtype: the type in numpy.
        """
        return self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def empty_sequence(self, dtype: Any) -> str:
        """Add a sequence of tensors, which is empty.

        Args:
            dtype: the type of the tensors in numpy.

        Returns:
            The name of the sequence.
        """
        name = self.unfolded_node("SequenceEmpty", dtype=self.onnx_type(dtype))
        self.sequence_dtypes[name] = dtype
        return name

    def loop(
        self,
        values: Sequence[BlockValue],
        body: Callable[..., Sequence[str]],
        num_iterations: str = "",
        condition: str = "",
    ) -> list[str]:
        """Add a loop that replaces some values in each iteration.

        Args:
            values: the values before the first iteration.
            body: a function of the number of the iteration and of the values, by their names. It
                adds the nodes of an iteration. It returns the names of a bool, whether another
                iteration follows, and of the next values.
            num_iterations: the name of int64, the number of iterations; "" for any number.
            condition: the name of a bool, whether there is a first iteration; "" for true.

        Returns:
            The names of the values after the last iteration.
        """
        helper = self._onnx.helper
        int64, boolean = self._onnx.TensorProto.INT64, self._onnx.TensorProto.BOOL
        iteration = self._make_name("iteration")
        condition_input = self._make_name("condition")
        inputs = [BlockValue(self._make_name("value"), *value[1:]) for value in values]
        input_names = [value.name for value in inputs]
        nodes, outputs = self._write_block(iteration, lambda: body(iteration, *input_names))
        inner_graph = helper.make_graph(
            nodes,
            iteration,
            [
                helper.make_tensor_value_info(iteration, int64, []),
                helper.make_tensor_value_info(condition_input, boolean, []),
                *map(self._describe, inputs),
            ],
            [
                helper.make_tensor_value_info(outputs[0], boolean, []),
                *(
                    self._describe(value._replace(name=name))
                    for value, name in zip(values, outputs[1:], strict=True)
                ),
            ],
        )
        names = [self._make_name("Loop") for _ in values]
        loop_inputs = [num_iterations, condition, *(value.name for value in values)]
        self._add_node("Loop", loop_inputs, names, body=inner_graph)
        return names

    def branch(
        self,
        condition: str,
        then: Callable[[], Sequence[str]],
        otherwise: Callable[[], Sequence[str]],
        dtypes: Sequence[Any],
    ) -> list[str]:
        """Add a choice between two computations.

        Args:
            condition: the name of a bool.
            then: adds the nodes for true, and returns the names of the results.
            otherwise: adds the nodes for false, and returns the names of the results.
            dtypes: the types of the results in numpy.

        Returns:
            The names of the results.
        """
        graphs = []
        for write in (then, otherwise):
            name = self._make_name("branch")
            nodes, outputs = self._write_block(name, write)
            results = map(BlockValue, outputs, dtypes)
            infos = [self._describe(result) for result in results]
            graphs.append(self._onnx.helper.make_graph(nodes, name, [], infos))
        names = [self._make_name("If") for _ in dtypes]
        self._add_node("If", [condition], names, then_branch=graphs[0], else_branch=graphs[1])
        return names

    def _write_block(
        self, name: str, write: Callable[[], Sequence[str]]
    ) -> tuple[list[onnx.NodeProto], list[str]]:
        """Returns the nodes of a block, and the names of its results."""
        outer_nodes, self._nodes = self._nodes, []
        outer_block, self.block = self.block, name
        outputs = []
        for result in write():
            outputs.append(self._make_name("result"))
            self._add_node("Identity", [result], outputs[-1:])
        nodes, _ = _select_needed(self._nodes, outputs)
        self._nodes, self.block = outer_nodes, outer_block
        return nodes, outputs

    def _add_node(
        self, operation: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> None:
        """Adds a node even if its inputs are constants."""
        helper = self._onnx.helper
        node = helper.make_node(operation, inputs, outputs, name=outputs[0], **attributes)
        self._nodes.append(node)

    def _describe(self, value: BlockValue) -> onnx.ValueInfoProto:
        helper = self._onnx.helper
        onnx_type = self.onnx_type(value.dtype)
        if value.is_sequence:
            return helper.make_tensor_sequence_value_info(value.name, onnx_type, None)
        return helper.make_tensor_value_info(value.name, onnx_type, None)

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
        return self.node("Cast", x, to=self.onnx_type(dtype))

    def model(
        self,
        inputs: Mapping[str, Sequence[str | int]],
        outputs: Mapping[str, tuple[str, Any, Sequence[str | int] | None]],
        metadata: Mapping[str, str],
        reads_text: bool = False,
    ) -> bytes:
        """Return the content of the file.

        Args:
            inputs: name -> the dimensions of an input, names where they are open.
            outputs: name -> the value, its type of numpy (object for texts), and its dimensions, or
                None if their number is open.
            metadata: the fields of the file by name.
            reads_text: whether the inputs are texts in place of int32.

        Raises:
            InputError: the file would have more than 2 GB.
        """
        helper = self._onnx.helper
        output_infos = []
        for name, (value, dtype, dimensions) in outputs.items():
            self._add_node("Identity", [value], [name])
            onnx_type = self.onnx_type(dtype)
            output_infos.append(helper.make_tensor_value_info(name, onnx_type, dimensions))
        tensor_types = self._onnx.TensorProto
        input_type = tensor_types.STRING if reads_text else tensor_types.INT32
        nodes, needed = _select_needed(self._nodes, outputs)
        names = [name for name in self._arrays if name in needed]
        graph = helper.make_graph(
            nodes,
            metadata.get("signature", "model"),
            [
                helper.make_tensor_value_info(name, input_type, dims)
                for name, dims in inputs.items()
            ],
            output_infos,
            [self.make_tensor(self._arrays[name], name) for name in names],
        )
        model = helper.make_model(
            graph,
            opset_imports=[
                helper.make_opsetid("", OPSET),
                *(
                    helper.make_opsetid(name, _DOMAIN_VERSIONS[name])
                    for name in sorted(self._domains)
                ),
            ],
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

    def make_tensor(self, values: np.ndarray, name: str) -> onnx.TensorProto:
        """Return values as a tensor of a file, such as an attribute of a node.

        Args:
            values: the values. Texts are an object array.
            name: the name of the tensor.
        """
        contiguous = np.ascontiguousarray(values)
        # `ascontiguousarray` makes a vector of a number.
        return self._onnx.numpy_helper.from_array(contiguous.reshape(values.shape), name)


def _select_needed(
    nodes: Sequence[onnx.NodeProto], outputs: Iterable[str]
) -> tuple[list[onnx.NodeProto], dict[str, None]]:
    """Returns the nodes that compute some values, and the names of the values that they need."""
    needed = dict.fromkeys(outputs)
    selected = []
    for node in reversed(nodes):
        if not needed.keys().isdisjoint(node.output):
            selected.append(node)
            needed |= dict.fromkeys(_list_inputs(node))
    return selected[::-1], needed


def _list_inputs(node: onnx.NodeProto) -> list[str]:
    """Returns the names that a node reads. Those of a loop include what its body reads."""
    names = list(node.input)
    for attribute in node.attribute:
        for inner in attribute.g.node:
            names += _list_inputs(inner)
    return names
