"""The texts of examples, each once, and their encoded form for training."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from absl import logging

from official_bert.data.model_inputs import ModelInputs, model_input_ids
from official_bert.data.text_tables import Example
from official_bert.io.errors import InputError
from official_bert.io.progress import counted
from official_bert.tokenization import FullTokenizer

if TYPE_CHECKING:
    from official_bert.extensions.embeddings.losses import Loss


class TextRows:
    """The different texts of a set, in the order in which they come, and their rows."""

    def __init__(self):
        self._rows: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        return list(self._rows)

    def __call__(self, text: str) -> int:
        """Returns the row of a text, which is a new one at its first call."""
        return self._rows.setdefault(text, len(self._rows))

    def encoded(self, tokenizer: FullTokenizer, max_seq_length: int) -> ModelInputs:
        """Returns the inputs of the model for all texts."""
        texts = counted(self.texts, "texts encoded")
        return ModelInputs(model_input_ids(tokenizer, text, None, max_seq_length) for text in texts)


@dataclasses.dataclass(frozen=True)
class EncodedExamples:
    """The training set: the texts of each example as rows of `inputs`, int32[n, N], and what the
    loss reads.
    """

    inputs: ModelInputs
    rows: np.ndarray
    further: Mapping[str, np.ndarray]  # by key, a value for each example
    targets: np.ndarray | None = None  # float32[texts, D]
    computed_features: ClassVar[tuple[str, ...]] = ("targets",)  # by the teacher

    @property
    def lengths(self) -> np.ndarray:
        """int64[n], tokens of the longest text of each example."""
        return self.inputs.lengths[self.rows].max(axis=1)

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns a batch: encoder features, int32[b, N, length], and what the loss reads."""
        texts = self.rows[rows]
        features = self.inputs.features(texts.ravel(), length)
        batch = {name: values.reshape(*texts.shape, length) for name, values in features.items()}
        targets = {} if self.targets is None else {"targets": self.targets[texts]}
        return batch | targets | {name: values[rows] for name, values in self.further.items()}


def all_texts(examples: Iterable[Example]) -> TextRows:
    """Returns the texts of examples: of each its anchor, its positives and its negatives."""
    rows = TextRows()
    for example in examples:
        for text in (example.anchor, *example.positives, *example.negatives):
            rows(text)
    return rows


def build_example_rows(
    examples: Sequence[Example], loss: Loss, name: str
) -> tuple[TextRows, np.ndarray]:
    """Returns the texts of a training set, and those of each example, int32[n, N], as the loss,
    called `name`, needs.

    An example with several positives is one for each of them.
    """
    fewest, most = loss.num_texts
    if most == 1:
        rows = all_texts(examples)
        return rows, np.repeat(
            np.arange(len(rows.texts), dtype=np.int32)[:, None], loss.repeats, axis=1
        )
    rows = TextRows()
    for example in examples:
        if not example.positives or len(example.negatives) < fewest - 2:
            needed = "an anchor, a positive and a negative text" if fewest == 3 else "two texts"
            raise InputError(
                f"{example.where}: --loss={name} needs {needed} in each example; name them with "
                "--columns"
            )
    numbers = sorted({len(example.negatives) for example in examples} - {0} or {0})
    num_negatives, num_before = min(most - 2, numbers[0]), len(examples)
    examples = [example for example in examples if len(example.negatives) >= num_negatives]
    if len(examples) < num_before or numbers[-1] > num_negatives:
        left_out = num_before - len(examples)
        logging.warning(
            "Negatives of an example: %d; left out with fewer: %d examples", num_negatives, left_out
        )
    listed = [
        [rows(example.anchor), rows(positive), *map(rows, example.negatives[:num_negatives])]
        for example in examples
        for positive in example.positives
    ]
    return rows, np.array(listed, np.int32)
