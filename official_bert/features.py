"""Defines the features of records, for the writer, the parser, the model and the signatures."""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

ENCODER_INPUTS = ("input_ids", "input_mask", "segment_ids")  # the inputs of every model
MASKED_LM_POSITIONS = "masked_lm_positions"
_EXAMPLES_AT_ONCE = 1000  # the number of examples that a digest reads at once


class Feature(NamedTuple):
    """A feature of a TFRecord example.

    Attributes:
        name: the key in the tf.Example.
        length: the number of values.
        dtype: the type in the model, "int32" or "float32"; integers are int64 in the file.
    """

    name: str
    length: int
    dtype: str


def encoder_features(max_seq_length: int) -> tuple[Feature, ...]:
    """Returns the inputs of every model: ids, mask and segments, each int32[max_seq_length].

    Args:
        max_seq_length: the number of tokens of an example.
    """
    return tuple(Feature(name, max_seq_length, "int32") for name in ENCODER_INPUTS)


def select_encoder_inputs(features: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the inputs of every model among the features of a batch.

    Args:
        features: values by name, perhaps with further features, such as labels.
    """
    return {name: features[name] for name in ENCODER_INPUTS}


def length_mask(lengths: np.ndarray, width: int) -> np.ndarray:
    """Returns bool[rows, width], true in the first `lengths[row]` columns of a row.

    Args:
        lengths: int[rows].
        width: the number of columns.
    """
    return np.arange(width) < lengths[:, None]


def pretraining_features(max_seq_length: int, max_predictions_per_seq: int) -> tuple[Feature, ...]:
    """Returns the seven features of a pre-training record, in the original's order.

    `masked_lm_weights` is 1.0 for a real prediction and 0.0 for padding; `next_sentence_labels` is
    1 when the second segment is random and 0 when it follows the first.

    Args:
        max_seq_length: the number of tokens of an example.
        max_predictions_per_seq: the number of masked tokens of an example, padding included.
    """
    return (
        *encoder_features(max_seq_length),
        Feature(MASKED_LM_POSITIONS, max_predictions_per_seq, "int32"),
        Feature("masked_lm_ids", max_predictions_per_seq, "int32"),
        Feature("masked_lm_weights", max_predictions_per_seq, "float32"),
        Feature("next_sentence_labels", 1, "int32"),
    )


def unmasked_features(max_seq_length: int) -> tuple[Feature, ...]:
    """Returns the features of a pre-training record whose masks are drawn when it is read.

    Args:
        max_seq_length: the number of tokens of an example.
    """
    features = pretraining_features(max_seq_length, max_predictions_per_seq=1)
    return tuple(feature for feature in features if not feature.name.startswith("masked_lm_"))


def squad_features(max_seq_length: int, is_training: bool) -> tuple[Feature, ...]:
    """Returns the features of a SQuAD window, in the original's order.

    `unique_ids` are the ids of the windows of a file; the positions are those of the answer's first
    and last piece, 0 if the window does not contain the whole answer; `is_impossible` is 1 for a
    question without an answer.

    Args:
        max_seq_length: the number of tokens of a window.
        is_training: whether the window has an answer.
    """
    inputs = (Feature("unique_ids", 1, "int32"), *encoder_features(max_seq_length))
    if not is_training:
        return inputs
    answer = ("start_positions", "end_positions", "is_impossible")
    return (*inputs, *(Feature(name, 1, "int32") for name in answer))


def classifier_features(
    max_seq_length: int, num_targets: int = 1, target_dtype: str = "int32"
) -> tuple[Feature, ...]:
    """Returns the features of an example of text classification, in the original's order.

    `label_ids` is the id of the label; in regression the score, as a float; in multi-label
    classification 1 for each label of the example and 0 for the others. `is_real_example` is 0 for
    examples that only fill a batch.

    Args:
        max_seq_length: the number of tokens of an example.
        num_targets: the number of values of `label_ids`.
        target_dtype: the type of `label_ids`, "int32" or "float32".
    """
    return (
        *encoder_features(max_seq_length),
        Feature("label_ids", num_targets, target_dtype),
        Feature("is_real_example", 1, "int32"),
    )


_ALL_FEATURES = (
    *pretraining_features(1, 1),
    *squad_features(1, True),
    *classifier_features(1),
)
# The features that a batch may have although a model does not read them: those of all records, the
# mask of the tags, and the weights of windows.
BATCH_FEATURES = {feature.name for feature in _ALL_FEATURES} | {"label_mask", "example_weight"}


class EncodedSet(Protocol):
    """A data set in memory without padding, which is padded batch by batch."""

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each example, special tokens included: int[n]."""
        ...

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns the features of some examples, padded to one length.

        Args:
            rows: int[b], the indices of the examples.
            length: the number of tokens.

        Returns:
            The features by name, each [b, ...].
        """
        ...


def content_digest(encoded: EncodedSet, includes_computed: bool = False) -> str:
    """Computes a digest of the examples of a set, with all features and labels, in their order.

    It is the same in every process, and however the set is padded.

    Args:
        encoded: the set.
        includes_computed: whether features count that another model has computed, so that their
            last bits depend on the processor. The attribute `computed_features` of the set, if it
            has one, lists their names.
    """
    ignored = () if includes_computed else getattr(encoded, "computed_features", ())
    digest = hashlib.sha256()
    num_examples = len(encoded.lengths)
    for start in range(0, num_examples, _EXAMPLES_AT_ONCE):
        rows = np.arange(start, min(start + _EXAMPLES_AT_ONCE, num_examples))
        longest = int(encoded.lengths[rows].max())
        for name, values in sorted(encoded.features(rows, longest).items()):
            if name not in ignored:
                digest.update(f"{name} {values.dtype.str} {values.shape}".encode())
                digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()
