"""Writes a traced TensorFlow graph into an ONNX graph.

Calls of functions, loops and branches are written here. `OPERATIONS` of onnx_operations.py has the
other operations. Some calls, such as those of an encoder or of a tokenizer, are written as a whole:
while the outputs of a task are traced, they return placeholders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from official_bert.extensions.onnx_files.onnx_graph import BlockValue
from official_bert.extensions.onnx_files.onnx_operations import OperationWriter

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_LOOPS = ("While", "StatelessWhile")
_BRANCHES = ("If", "StatelessIf")


class TracedCall(NamedTuple):
    """A call in a traced graph.

    Attributes:
        inputs: the inputs of the call.
        outputs: the placeholders that the traced graph reads in place of the outputs.
        write: adds the nodes of the call. Its arguments are the writer of the graph and the names
            of the inputs. It returns the names of the outputs.
    """

    inputs: Sequence[tf.Tensor]
    outputs: Sequence[tf.Tensor]
    write: Callable[..., Sequence[str]]


def make_call(
    inputs: Sequence[tf.Tensor],
    outputs: Sequence[tf.Tensor],
    write: Callable[..., Sequence[str]],
) -> TracedCall:
    """Make a call of the graph that is being traced; see `TracedCall`.

    Args:
        inputs: the inputs, which may be values of an outer graph.
        outputs: the placeholders.
        write: adds the nodes.
    """
    # A branch or the body of a loop gets values of the outer graph by its operations.
    return TracedCall([tf.identity(value) for value in inputs], outputs, write)


def make_placeholder(dtype: tf.DType, *shape: int | None) -> tf.Tensor:
    """Make a value of a traced graph that a call computes.

    Args:
        dtype: its type.
        *shape: its shape, None for open sizes.
    """
    return tf.compat.v1.placeholder(dtype, shape)


class Translator:
    """Writes the operations that tensors of a TensorFlow graph need, each once."""

    def __init__(self, writer: OperationWriter, calls: Iterable[TracedCall]):
        """Prepares the graph.

        Args:
            writer: writes operations, except calls, loops and branches.
            calls: the calls that are written as a whole.
        """
        self._graph = writer.graph
        self._writer = writer
        self._names: dict[Any, str] = {}
        self._calls: dict[Any, TracedCall] = {}
        for call in calls:
            for tensor in call.outputs:
                self._calls[tensor.ref()] = call

    def enter(self, graph: Any, inputs: Iterable[str]) -> None:
        """Give the inputs of a graph names, and its captured variables their values.

        Args:
            graph: the traced graph.
            inputs: the names of its inputs without the captured ones, which follow them.
        """
        for tensor, name in zip(graph.inputs, inputs, strict=False):
            self._names[tensor.ref()] = name
        variables = {id(variable.handle): variable for variable in graph.variables}
        for captured, placeholder in graph.captures:
            variable = variables.get(id(captured))
            if variable is None:
                name = self._graph.constant(captured.numpy())
            else:
                name = self._graph.constant(variable.numpy(), variable.name.split(":")[0])
            self._names[placeholder.ref()] = name

    def translate(self, tensor: tf.Tensor) -> str:
        """Return the name of a tensor in the ONNX graph.

        Args:
            tensor: a tensor of a graph that was entered.
        """
        # A recursion would be too deep for long chains of operations.
        waiting = [tensor]
        while waiting:
            next_tensor = waiting[-1]
            key = next_tensor.ref()
            source: Any = self._calls.get(key, next_tensor.op)
            missing = [value for value in source.inputs if value.ref() not in self._names]
            if key in self._names:
                waiting.pop()
            elif missing:
                waiting += missing
            elif isinstance(source, TracedCall):
                self._translate_call(source)
            else:
                self._translate_operation(source)
        return self._names[tensor.ref()]

    def _translate_call(self, call: TracedCall) -> None:
        inputs = [self._names[tensor.ref()] for tensor in call.inputs]
        outputs = call.write(self._writer, *inputs)
        self._name(call.outputs, outputs)

    def _name(self, tensors: Iterable[tf.Tensor], names: Iterable[str]) -> None:
        """Gives tensors their names."""
        for tensor, name in zip(tensors, names, strict=True):
            self._names[tensor.ref()] = name

    def _translate_operation(self, operation: tf.Operation) -> None:
        inputs = [self._names[tensor.ref()] for tensor in operation.inputs]
        if operation.type == "ReadVariableOp":
            outputs = inputs
        elif operation.type in _CALLS:
            body = _find_body(operation, "f")
            outputs = self._translate_body(body, inputs, body.outputs)
        elif operation.type in _LOOPS:
            outputs = self._translate_loop(operation, inputs)
        elif operation.type in _BRANCHES:
            outputs = self._translate_branches(operation, inputs)
        else:
            outputs = self._writer.write(operation, inputs)
        self._name(operation.outputs, outputs)

    def _translate_body(
        self, body: tf.Graph, inputs: Sequence[str], outputs: Sequence[tf.Tensor]
    ) -> list[str]:
        """Returns outputs of the function of an operation."""
        outer_names = self._names
        # Another call of the function has other values of the same tensors.
        self._names = {tensor.ref(): name for tensor, name in zip(body.inputs, inputs, strict=True)}
        names = [self.translate(tensor) for tensor in outputs]
        self._names = outer_names
        return names

    def _translate_branches(self, operation: tf.Operation, inputs: Sequence[str]) -> list[str]:
        """Returns the results of the branch that a condition chooses."""
        condition, *values = inputs

        def make_branch(attribute: str) -> Callable[[], list[str]]:
            body = _find_body(operation, attribute)
            return lambda: self._translate_body(body, values, body.outputs)

        return self._graph.branch(
            condition,
            then=make_branch("then_branch"),
            otherwise=make_branch("else_branch"),
            dtypes=[output.dtype.as_numpy_dtype for output in operation.outputs],
        )

    def _translate_loop(self, operation: tf.Operation, inputs: Sequence[str]) -> list[str]:
        """Returns the values after a loop."""
        body = _find_body(operation, "body")
        condition = _find_body(operation, "cond")
        # The other values, such as weights, are the same in each iteration.
        changing = _list_changing(body)
        next_values = [body.outputs[index] for index in changing]

        def join(values: Sequence[str]) -> list[str]:
            """Returns all values, from those that change."""
            names = list(inputs)
            for index, name in zip(changing, values, strict=True):
                names[index] = name
            return names

        def test(values: Sequence[str]) -> str:
            results = self._translate_body(condition, join(values), condition.outputs)
            return results[0]

        def write(iteration: str, *values: str) -> list[str]:
            results = self._translate_body(body, join(values), next_values)
            return [test(results), *results]

        start = []
        for index in changing:
            dtype = operation.inputs[index].dtype
            start.append(self._describe(dtype, inputs[index]))
        is_first = test([value.name for value in start])
        return join(self._graph.loop(start, write, condition=is_first))

    def _describe(self, dtype: tf.DType, name: str) -> BlockValue:
        """Returns a value with its type. A list is a sequence in ONNX."""
        item_dtype = self._graph.sequence_dtypes.get(name)
        if item_dtype is None:
            return BlockValue(name, dtype.as_numpy_dtype)
        return BlockValue(name, item_dtype, is_sequence=True)


def _list_changing(body: Any) -> list[int]:
    """Returns the indices of the values that the body of a loop changes."""
    changing = []
    for index, tensor in enumerate(body.outputs):
        while tensor.op.type == "Identity":
            tensor = tensor.op.inputs[0]
        if tensor is not body.inputs[index]:
            changing.append(index)
    return changing


def _find_body(operation: tf.Operation, attribute: str) -> Any:
    """Returns the graph of a function that an operation calls."""
    function = operation.get_attr(attribute)
    return operation.graph._get_function(function.name).graph
