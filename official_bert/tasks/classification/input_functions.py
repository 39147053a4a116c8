"""The original's input functions: features in memory, or in record files, into tf.data.

Each builder gives a function of `params`, whose "batch_size" it reads, that returns a Dataset: what an Estimator was
handed. Our own training reads examples by number instead (`training/example_batches.py`).
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
    """Reads what `file_based_convert_examples_to_features` wrote.

    Args:
        input_file: the record file; gzip where its name ends in .gz.
        seq_length: that the examples were padded to.
        is_training: whether the examples come round again and again, shuffled; otherwise once, in order.
        drop_remainder: whether a last batch that is not full is left out.
        num_targets: labels of an example, where several hold at once.
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
    """Reads what `convert_examples_to_features` gave.

    Args:
        features: of the examples.
        seq_length: that they were padded to.
        is_training: as in `file_based_input_fn_builder`.
        drop_remainder: likewise.

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
