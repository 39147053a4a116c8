"""The record features: one table that the writer, the parser, the model and the signatures share."""

import hashlib
from typing import NamedTuple, Protocol

import numpy as np

ENCODER_INPUTS = ("input_ids", "input_mask", "segment_ids")  # the inputs of every model
MASKED_LM_POSITIONS = "masked_lm_positions"
_DIGESTED_TOGETHER = 1000  # examples


class Feature(NamedTuple):
    """A feature of a TFRecord example.

    Attributes:
        name: key in the tf.Example.
        length: number of values.
        dtype: type in the model, "int32" or "float32"; integers are int64 in the file.
    """

    name: str
    length: int
    dtype: str


def encoder_features(max_seq_length: int) -> tuple[Feature, ...]:
    """Returns the inputs of every model: ids, mask and segments, each int32[max_seq_length]."""
    return tuple(Feature(name, max_seq_length, "int32") for name in ENCODER_INPUTS)


def pretraining_features(max_seq_length: int, max_predictions_per_seq: int) -> tuple[Feature, ...]:
    """Returns the seven features of a pre-training record, in the original's order.

    `masked_lm_weights` is 1.0 for a real prediction and 0.0 for padding; `next_sentence_labels` is
    1 when the second segment is random and 0 when it follows the first.
    """
    return (
        *encoder_features(max_seq_length),
        Feature(MASKED_LM_POSITIONS, max_predictions_per_seq, "int32"),
        Feature("masked_lm_ids", max_predictions_per_seq, "int32"),
        Feature("masked_lm_weights", max_predictions_per_seq, "float32"),
        Feature("next_sentence_labels", 1, "int32"),
    )


def unmasked_features(max_seq_length: int) -> tuple[Feature, ...]:
    """Returns the features of a pre-training record without masks, which are drawn when it is read."""
    return tuple(
        feature
        for feature in pretraining_features(max_seq_length, 1)
        if not feature.name.startswith("masked_lm_")
    )


def squad_features(max_seq_length: int, is_training: bool) -> tuple[Feature, ...]:
    """Returns the features of a SQuAD window, in the original's order.

    `unique_ids` are the ids of the windows of a file; the positions are those of the answer's first
    and last piece, 0 if the window does not contain the whole answer; `is_impossible` is 1 for a
    question without an answer.
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
    """
    return (
        *encoder_features(max_seq_length),
        Feature("label_ids", num_targets, target_dtype),
        Feature("is_real_example", 1, "int32"),
    )


# What a batch may have although a model does not read it: the features of all records, the mask of
# the tags, and the weights of windows.
BATCH_FEATURES = {
    feature.name
    for table in (pretraining_features(1, 1), squad_features(1, True), classifier_features(1))
    for feature in table
} | {"label_mask", "example_weight"}


class EncodedSet(Protocol):
    """A data set in memory without padding, which is padded batch by batch."""

    lengths: np.ndarray  # int[n], tokens of each example, including the special tokens

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns the features of examples int[b], padded to `length` tokens, by name, each [b,
        ...].
        """


def content_digest(encoded: EncodedSet, includes_computed: bool = False) -> str:
    """Returns a digest of the examples of a set, with all features and labels, in their order.

    It is the same in every process, and however the set is padded.

    Args:
        encoded: the set.
        includes_computed: whether features count that another model has computed, so that their
            last bits depend on the processor: the names in `encoded.computed_features`, if it has
            this attribute.
    """
    ignored = () if includes_computed else getattr(encoded, "computed_features", ())
    digest, num_examples = hashlib.sha256(), len(encoded.lengths)
    for start in range(0, num_examples, _DIGESTED_TOGETHER):
        rows = np.arange(start, min(start + _DIGESTED_TOGETHER, num_examples))
        longest = int(encoded.lengths[rows].max())
        for name, values in sorted(encoded.features(rows, longest).items()):
            if name not in ignored:
                digest.update(f"{name} {values.dtype.str} {values.shape}".encode())
                digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()
