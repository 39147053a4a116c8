"""Texts that are longer than the model's input: they are cut into windows, whose logits are
pooled by text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import numpy as np

from official_bert.data.model_inputs import doc_spans
from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import TRUNCATE, WINDOW_POOLINGS, WINDOWS
from official_bert.tasks.classification.settings import ClassificationSettings
from official_bert.tokenization import FullTokenizer

if TYPE_CHECKING:
    import tensorflow as tf

Outputs = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class LongTexts:
    """The rules of --long_texts=windows: the fields are named like the flags."""

    doc_stride: int
    pooling: str

    @classmethod
    def from_settings(cls, settings: ClassificationSettings) -> Self | None:
        """Makes the rules of flags or of a record; None where texts are truncated."""
        kind = settings.long_texts or TRUNCATE
        if kind == TRUNCATE:
            return None
        stride, pooling = settings.doc_stride, settings.pooling
        if (
            kind != WINDOWS
            or pooling not in WINDOW_POOLINGS
            or not isinstance(stride, int)
            or stride < 1
        ):
            raise InputError(
                f"--long_texts={kind}, --doc_stride={stride}, --pooling={pooling}: give {WINDOWS}, "
                f"a positive stride and one of {', '.join(WINDOW_POOLINGS)}, or restore the record "
                "of the model"
            )
        return cls(stride, pooling)

    def windows(
        self, tokenizer: FullTokenizer, text: str, max_seq_length: int
    ) -> list[tuple[list[int], int]]:
        """Returns the ids of each window, `[CLS] window [SEP]`, and their number; a text has at
        least one window.
        """
        ids, room = tokenizer.encode(text), max(1, max_seq_length - 2)
        cls_id, sep_id = tokenizer.vocab["[CLS]"], tokenizer.vocab["[SEP]"]
        spans = doc_spans(len(ids), room, self.doc_stride) or [(0, 0)]
        return [
            ([cls_id, *ids[start : start + length], sep_id], length + 2) for start, length in spans
        ]

    def pooled(self, values: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Pools float32[windows, ...] of texts, which have int[texts] windows each, in order:
        float32[texts, ...].
        """
        starts = np.cumsum(counts) - counts
        if self.pooling == "first":
            return values[starts]
        if self.pooling == "max":
            return np.maximum.reduceat(values, starts)
        numbers = counts.astype(values.dtype).reshape(-1, *[1] * (values.ndim - 1))
        return np.add.reduceat(values, starts) / numbers

    def pooled_in_graph(self, values: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
        """Pools float32[windows, K] in a graph; `texts`, int32[windows], are the texts of the
        windows, in order.
        """
        import tensorflow as tf

        if self.pooling == "first":
            return tf.boolean_mask(values, tf.concat([[-1], texts[:-1]], axis=0) != texts)
        return (tf.math.segment_max if self.pooling == "max" else tf.math.segment_mean)(
            values, texts
        )

    def outputs_of_texts(
        self, outputs: Outputs, counts: np.ndarray, further: Callable[[np.ndarray], Outputs]
    ) -> Outputs:
        """Returns a model's outputs for texts from those for their windows.

        `further` computes what follows of pooled logits or scores; a text of one window keeps what
        the model said.
        """
        name = "score" if "score" in outputs else "logits"
        found = {key: values[np.cumsum(counts) - counts] for key, values in outputs.items()}
        found[name] = self.pooled(outputs[name], counts)
        for key, values in further(found[name]).items():
            is_pooled = (counts > 1).reshape(-1, *[1] * (values.ndim - 1))
            found[key] = np.where(is_pooled, values, found[key]).astype(found[key].dtype)
        return found
