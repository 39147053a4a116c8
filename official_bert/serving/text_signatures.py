"""The signatures of a SavedModel that reads raw text: strings in, a task's answers out.

Such a model can only be loaded with the ops of tensorflow_text, so it is a separate SavedModel.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

# Names of the strings of a request, and their shapes: ("question", [None]), ("endings", [None, 4]).
TextInputs = Mapping[str, Sequence[int | None]]
Answer = Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]]


def text_signature(inputs: TextInputs, answer: Answer) -> Callable:
    """Returns a tf.function of strings.

    Args:
        inputs: the names and shapes of its inputs; the first dimension is the batch.
        answer: a function from strings by name to a dict of [batch, ...].
    """
    specs = {name: tf.TensorSpec(shape, tf.string, name) for name, shape in inputs.items()}

    @tf.function(input_signature=[specs], autograph=False)
    def serving_text(texts):
        first = next(iter(inputs))
        num_rows = tf.shape(texts[first])[0]
        checks = [tf.debugging.Assert(num_rows > 0, ["a request must have at least one text"])]
        for name, strings in texts.items():
            same = tf.shape(strings)[0] == num_rows
            checks.append(tf.debugging.Assert(same, [f"{name} must have as many rows as {first}"]))
        with tf.control_dependencies(checks):
            return answer({name: tf.identity(strings) for name, strings in texts.items()})

    return serving_text


def text_request(inputs: TextInputs, length: int) -> dict[str, np.ndarray]:
    """Makes the strings for the warm-up: one example whose texts have `length` words, of which one is [MASK]."""
    text = b"[MASK]" + b" a" * (length - 1)
    return {name: np.full((1, *shape[1:]), text, object) for name, shape in inputs.items()}
