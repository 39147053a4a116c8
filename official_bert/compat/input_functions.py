"""The original's functions of run_classifier.py: features of examples, and tf.data pipelines from
them or from files.

Each builder returns a function of `params` that reads "batch_size" from it and returns a Dataset,
as an Estimator expects; in training it shuffles the examples and repeats them without end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from official_bert.data.model_inputs import model_input
from official_bert.data.records.framing import is_compressed
from official_bert.data.records.record_files import log_progress, record_dataset, write_encoded_set
from official_bert.features import ENCODER_INPUTS, Feature, classifier_features
from official_bert.tasks.classification.examples import (
    LOGGED_EXAMPLES,
    InputExample,
    PaddingInputExample,
    encode_examples,
    log_first_examples,
    log_input_example,
    make_target_encoder,
)
from official_bert.tokenization import FullTokenizer

if TYPE_CHECKING:
    import tensorflow as tf

InputFn = Callable[[Mapping[str, int]], "tf.data.Dataset"]
_BUFFER_SIZE = 100  # the original's


def record_input_fn(
    input_file: str, features: Sequence[Feature], is_training: bool, drop_remainder: bool
) -> InputFn:
    """Reads a record file by the table of its features, each [B, length], or [B] where the
    length is 1.

    Args:
        input_file: the path of the file, plain or gzip.
        features: the table. Its names are the keys in the file and in the Dataset.
        is_training: whether the records are shuffled and repeated without end.
        drop_remainder: whether a last batch of fewer records is left out.

    Returns:
        A function of `params` that reads "batch_size" from it and returns a Dataset.
    """

    def input_fn(params: Mapping):
        import tensorflow as tf

        spec = {
            name: tf.io.FixedLenFeature(
                [] if length == 1 else [length], tf.float32 if dtype == "float32" else tf.int64
            )
            for name, length, dtype in features
        }

        def parse(serialized: tf.Tensor):
            parsed = tf.io.parse_example(serialized, spec)
            return {name: tf.cast(parsed[name], dtype) for name, _, dtype in features}

        all_records = record_dataset(input_file, is_compressed(input_file))
        records = shuffle_for_training(all_records, is_training)
        # Parsing a whole batch is several times faster than parsing one record after the other.
        return records.batch(params["batch_size"], drop_remainder).map(parse)

    return input_fn


def shuffle_for_training(dataset: tf.data.Dataset, is_training: bool) -> tf.data.Dataset:
    """Returns a dataset that in training is repeated and then shuffled through a buffer, so that
    passes over the set blend at their borders.

    Args:
        dataset: single examples, in the order of the set.
        is_training: whether the dataset is shuffled and repeated. Otherwise it is returned as it
            is.
    """
    return dataset.repeat().shuffle(_BUFFER_SIZE) if is_training else dataset


def file_based_input_fn_builder(
    input_file: str,
    seq_length: int,
    is_training: bool,
    drop_remainder: bool,
    *,
    num_targets: int = 1,
    target_dtype: str = "int32",
) -> InputFn:
    """Builds an input function for a file, plain or gzip, of
    `file_based_convert_examples_to_features`.

    Its Dataset has `input_ids`, `input_mask` and `segment_ids`, int32[B, seq_length], `label_ids`
    and `is_real_example`, int32[B] (`label_ids` is [B, num_targets] if there are several).

    Args:
        input_file: the path of the file.
        seq_length: the number of tokens of an example, which is that of the file.
        is_training: whether the examples are shuffled and repeated without end.
        drop_remainder: whether a last batch of fewer examples is left out.
        num_targets: the number of values of `label_ids`, which is the number of labels in
            multi-label classification.
        target_dtype: the type of `label_ids`: "float32" in regression, otherwise "int32".
    """
    features = classifier_features(seq_length, num_targets, target_dtype)
    return record_input_fn(input_file, features, is_training, drop_remainder)


def input_fn_builder(
    features: Sequence[InputFeatures], seq_length: int, is_training: bool, drop_remainder: bool
) -> InputFn:
    """Builds an input function for the results of `convert_examples_to_features`.

    Its Dataset has `input_ids`, `input_mask` and `segment_ids`, int32[B, seq_length], and
    `label_ids`, int32[B] (float32 in regression).

    Args:
        features: the features of all examples.
        seq_length: the number of tokens of an example, with which the features were made.
        is_training: whether the examples are shuffled and repeated without end.
        drop_remainder: whether a last batch of fewer examples is left out.
    """
    columns: dict[str, np.ndarray] = {}
    for name in ENCODER_INPUTS:
        values = [getattr(feature, name) for feature in features]
        columns[name] = np.array(values, np.int32).reshape(-1, seq_length)
    targets = np.array([feature.label_id for feature in features])
    is_regression = targets.dtype.kind == "f"
    columns["label_ids"] = targets.astype(np.float32 if is_regression else np.int32)

    def input_fn(params: Mapping):
        import tensorflow as tf

        dataset = tf.data.Dataset.from_tensor_slices(columns)
        examples = shuffle_for_training(dataset, is_training)
        return examples.batch(params["batch_size"], drop_remainder)

    return input_fn


@dataclasses.dataclass
class InputFeatures:
    """The features of an example.

    Attributes:
        input_ids: ids, padded with 0 to the maximum length, as are the next two.
        input_mask: 1 for tokens, 0 for padding.
        segment_ids: 1 for tokens of the second text.
        label_id: id of the label; a float in regression, a list of 0 and 1 in multi-label
            classification.
        is_real_example: False for padding examples.
    """

    input_ids: list[int]
    input_mask: list[int]
    segment_ids: list[int]
    label_id: int | float | list[int]
    is_real_example: bool = True


def convert_single_example(
    ex_index: int,
    example: InputExample | PaddingInputExample,
    label_list: Sequence[str] | None,
    max_seq_length: int,
    tokenizer: FullTokenizer,
) -> InputFeatures:
    """Tokenizes an example and cuts or pads it to `max_seq_length`; the first five examples are
    logged.

    Args:
        ex_index: the index of the example in its set.
        example: the example. One that only fills a batch has zeros as its features.
        label_list: the labels by id; None in regression.
        max_seq_length: the number of tokens of the result, special tokens and padding included.
        tokenizer: the tokenizer of the model.

    Raises:
        InputError: the label is not in the list, or is not a score in regression.
    """
    if isinstance(example, PaddingInputExample):
        return InputFeatures(
            *([0] * max_seq_length for _ in range(3)), label_id=0, is_real_example=False
        )
    tokens, segment_ids = model_input(tokenizer, example.text_a, example.text_b, max_seq_length)
    padding = [0] * (max_seq_length - len(tokens))
    target = make_target_encoder(label_list)(example)
    features = InputFeatures(
        input_ids=tokenizer.convert_tokens_to_ids(tokens) + padding,
        input_mask=[1] * len(tokens) + padding,
        segment_ids=segment_ids + padding,
        label_id=0 if target is None else target,
    )
    if ex_index < LOGGED_EXAMPLES:
        log_input_example(ex_index, example, tokens, vars(features), features.label_id)
    return features


def convert_examples_to_features(
    examples: Sequence[InputExample | PaddingInputExample],
    label_list: Sequence[str] | None,
    max_seq_length: int,
    tokenizer: FullTokenizer,
) -> list[InputFeatures]:
    """Returns the features of each example, in order, as `convert_single_example` makes them.

    Args:
        examples: the examples.
        label_list: the labels by id; None in regression.
        max_seq_length: the number of tokens of each result, special tokens and padding included.
        tokenizer: the tokenizer of the model.

    Raises:
        InputError: a label is not in the list, or is not a score in regression.
    """
    features = []
    for index, example in enumerate(examples):
        log_progress(index, len(examples))
        features.append(
            convert_single_example(index, example, label_list, max_seq_length, tokenizer)
        )
    return features


def file_based_convert_examples_to_features(
    examples: Sequence[InputExample | PaddingInputExample],
    label_list: Sequence[str] | None,
    max_seq_length: int,
    tokenizer: FullTokenizer,
    output_file: str,
) -> None:
    """Writes the features of each example, padded to `max_seq_length`, as a TFRecord file.

    Args:
        examples: the examples.
        label_list: the labels by id; None in regression.
        max_seq_length: the number of tokens of each record, special tokens and padding included.
        tokenizer: the tokenizer of the model.
        output_file: the path of the TFRecord file.

    Raises:
        InputError: a label is not in the list, or is not a score in regression.
    """
    encoded = encode_examples(examples, label_list, max_seq_length, tokenizer)
    log_first_examples(examples, encoded, max_seq_length, tokenizer)
    write_encoded_set(
        output_file, len(encoded), lambda rows: encoded.features(rows, max_seq_length)
    )
