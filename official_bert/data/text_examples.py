"""The distinct texts of examples, and their encoded form for training."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Protocol

import numpy as np
from absl import logging

from official_bert.data.model_inputs import ModelInputs, model_input_ids
from official_bert.data.text_tables import Example
from official_bert.io.errors import InputError
from official_bert.io.progress import counted
from official_bert.tokenization import FullTokenizer


class TextLoss(Protocol):
    """What the rows of a training set depend on.

    Attributes:
        num_texts: the fewest and the most texts of an example.
        repeats: the number of times that a text of an example is encoded.
    """

    num_texts: tuple[int, int]
    repeats: int


class TextRows:
    """The distinct texts of a set. The row of a text is its number in the order of appearance."""

    def __init__(self):
        self._rows: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        """The texts in the order of their rows."""
        return list(self._rows)

    def __call__(self, text: str) -> int:
        """Return the row of a text; add the text if it is new."""
        return self._rows.setdefault(text, len(self._rows))

    def encoded(self, tokenizer: FullTokenizer, max_seq_length: int) -> ModelInputs:
        """Return the inputs of the model for all texts.

        Args:
            tokenizer: the tokenizer of the model.
            max_seq_length: the maximum number of tokens; longer texts are truncated.

        Returns:
            The inputs in the order of the rows.
        """
        texts = counted(self.texts, "texts encoded")
        return ModelInputs(model_input_ids(tokenizer, text, None, max_seq_length) for text in texts)


@dataclasses.dataclass(frozen=True)
class EncodedExamples:
    """The training set: n examples of N texts each, and the additional features of the loss.

    Attributes:
        inputs: the inputs of the model for all distinct texts.
        rows: the texts of each example as rows of `inputs`, int32[n, N].
        further: the additional features by key, a value for each example.
        targets: the teacher's embeddings of the texts, float32[texts, D]; None without a teacher.
        computed_features: the features that a teacher computes.
    """

    inputs: ModelInputs
    rows: np.ndarray
    further: Mapping[str, np.ndarray]
    targets: np.ndarray | None = None
    computed_features: ClassVar[tuple[str, ...]] = ("targets",)

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens in the longest text of each example, int64[n]."""
        return self.inputs.lengths[self.rows].max(axis=1)

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Return a batch.

        Args:
            rows: the rows of the examples, int[b].
            length: the number of tokens to which each text is padded.

        Returns:
            Encoder features, int32[b, N, length], and the additional features of the loss.
        """
        texts = self.rows[rows]
        encoder_features = self.inputs.features(texts.ravel(), length)
        batch = {}
        for name, values in encoder_features.items():
            batch[name] = values.reshape(*texts.shape, length)
        if self.targets is not None:
            batch["targets"] = self.targets[texts]
        for name, values in self.further.items():
            batch[name] = values[rows]
        return batch


def all_texts(examples: Iterable[Example]) -> TextRows:
    """Return the texts of examples.

    Args:
        examples: the examples.

    Returns:
        The distinct texts among the anchors, positives and negatives of all examples.
    """
    rows = TextRows()
    for example in examples:
        for text in (example.anchor, *example.positives, *example.negatives):
            rows(text)
    return rows


def build_example_rows(
    examples: Sequence[Example], loss: TextLoss, name: str
) -> tuple[TextRows, np.ndarray]:
    """Return the texts of a training set, and those of each example.

    An example with several positives becomes several examples, one for each positive. All examples
    get the same number of negatives. Examples with fewer negatives are left out.

    Args:
        examples: the examples of the set.
        loss: the loss, which limits the number of texts in an example.
        name: the name of the loss, for error messages.

    Returns:
        All texts, and the rows of each example, int32[n, N].

    Raises:
        InputError: an example has too few texts for the loss.
    """
    fewest, most = loss.num_texts
    if most == 1:
        rows = all_texts(examples)
        text_rows = np.arange(len(rows.texts), dtype=np.int32)
        return rows, np.repeat(text_rows[:, None], loss.repeats, axis=1)
    for example in examples:
        if not example.positives or len(example.negatives) < fewest - 2:
            needed = "an anchor, a positive and a negative text" if fewest == 3 else "two texts"
            raise InputError(
                f"{example.where}: --loss={name} needs {needed} in each example; name them with "
                "--anchor_column, --positive_column and --negative_columns"
            )
    num_negatives = _choose_num_negatives(examples, most - 2)
    rows = TextRows()
    example_rows = []
    for example in examples:
        if len(example.negatives) < num_negatives:
            continue
        for positive in example.positives:
            texts = (example.anchor, positive, *example.negatives[:num_negatives])
            example_rows.append([rows(text) for text in texts])
    return rows, np.array(example_rows, np.int32)


def _choose_num_negatives(examples: Sequence[Example], most: int) -> int:
    """Returns the smallest number of negatives above 0 that an example has, at most `most`."""
    counts = [len(example.negatives) for example in examples]
    num_negatives = min(most, min((count for count in counts if count), default=0))
    num_omitted = sum(count < num_negatives for count in counts)
    if num_omitted or max(counts, default=0) > num_negatives:
        logging.warning(
            "Each example has %d negatives; %d examples with fewer are left out",
            num_negatives,
            num_omitted,
        )
    return num_negatives
