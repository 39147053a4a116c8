"""The original's input functions over record files: functions of `params`, as an Estimator took them, to a Dataset.

Training in this project reads examples by number instead (training/example_batches.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from official_bert.data.records.datasets import records_of
from official_bert.data.records.framing import is_compressed
from official_bert.features import Feature

if TYPE_CHECKING:
    import tensorflow as tf

InputFn = Callable[[Mapping[str, int]], "tf.data.Dataset"]
_BUFFER_SIZE = 100  # the original's


def record_input_fn(
    input_file: str, features: Sequence[Feature], is_training: bool, drop_remainder: bool
) -> InputFn:
    """Reads a record file by the table of its features; arguments and order are those of the builders.

    Returns:
        A function of `params` to a Dataset of {name: [B, length] in the table's type, [B] where the length is 1}.
    """

    def input_fn(params):
        import tensorflow as tf

        spec = {
            name: tf.io.FixedLenFeature(
                [] if length == 1 else [length], tf.float32 if dtype == "float32" else tf.int64
            )
            for name, length, dtype in features
        }

        def parse(serialized):
            parsed = tf.io.parse_example(serialized, spec)
            return {name: tf.cast(parsed[name], dtype) for name, _, dtype in features}

        records = in_original_order(records_of(input_file, is_compressed(input_file)), is_training)
        # Batched first and parsed together: several times faster than one by one.
        return records.batch(params["batch_size"], drop_remainder).map(parse)

    return input_fn


def in_original_order(dataset: tf.data.Dataset, is_training: bool) -> tf.data.Dataset:
    """In training repeated and then shuffled through a buffer, so that passes over the set blend at their borders."""
    return dataset.repeat().shuffle(_BUFFER_SIZE) if is_training else dataset
