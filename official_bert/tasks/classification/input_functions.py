"""The original's input functions: tf.data pipelines from features in memory or in record files.

Each builder returns a function of `params` that reads "batch_size" from it and returns a Dataset, as an Estimator
expects. Our own training accesses examples by index instead (`training/example_batches.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from official_bert.data.records.input_functions import InputFn, in_original_order, record_input_fn
from official_bert.features import ENCODER_INPUTS, classifier_features
from official_bert.tasks.classification.examples import InputFeatures


def file_based_input_fn_builder(
    input_file: str,
    seq_length: int,
    is_training: bool,
    drop_remainder: bool,
    *,
    num_targets: int = 1,
    target_dtype: str = "int32",
) -> InputFn:
    """Builds an input function for a file of `file_based_convert_examples_to_features`.

    Args:
        input_file: the record file; compressed with gzip if its name ends in .gz.
        seq_length: the padded length of the examples.
        is_training: whether the examples are shuffled and repeated without end; otherwise they are read once, in order.
        drop_remainder: whether an incomplete last batch is dropped.
        num_targets: number of labels in multi-label classification, else 1.
        target_dtype: "float32" in regression.

    Returns:
        A function of `params` to a Dataset of `input_ids`, `input_mask` and `segment_ids`, int32[B, seq_length],
        `label_ids` and `is_real_example`, int32[B] (`label_ids` is [B, num_targets] if there are several).
    """
    features = classifier_features(seq_length, num_targets, target_dtype)
    return record_input_fn(input_file, features, is_training, drop_remainder)


def input_fn_builder(
    features: Sequence[InputFeatures], seq_length: int, is_training: bool, drop_remainder: bool
) -> InputFn:
    """Builds an input function for the results of `convert_examples_to_features`.

    Args:
        features: the features of the examples.
        seq_length: their padded length.
        is_training: as in `file_based_input_fn_builder`.
        drop_remainder: as in `file_based_input_fn_builder`.

    Returns:
        A function of `params` to a Dataset of `input_ids`, `input_mask` and `segment_ids`, int32[B, seq_length],
        and `label_ids`, int32[B] (float32 in regression).
    """
    columns = {
        name: np.array([getattr(feature, name) for feature in features], np.int32).reshape(-1, seq_length)
        for name in ENCODER_INPUTS
    }
    targets = np.array([feature.label_id for feature in features])
    columns["label_ids"] = targets.astype(np.float32 if targets.dtype.kind == "f" else np.int32)

    def input_fn(params):
        import tensorflow as tf

        dataset = tf.data.Dataset.from_tensor_slices(columns)
        return in_original_order(dataset, is_training).batch(params["batch_size"], drop_remainder)

    return input_fn
