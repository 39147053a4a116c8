"""Texts that are longer than the model's input: they are cut into windows, and the logits of a
text's windows are pooled.
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
    """The rules of --long_texts=windows.

    Attributes:
        doc_stride: the number of tokens from the start of a window to the start of the next one.
        pooling: how the logits of a text's windows become one: mean, max or first.
    """

    doc_stride: int
    pooling: str

    @classmethod
    def from_settings(cls, settings: ClassificationSettings) -> Self | None:
        """Read the rules from flags or from a record.

        Args:
            settings: the settings of a run or of an export.

        Returns:
            The rules, or None if long texts are truncated.

        Raises:
            InputError: a setting has a value that no training writes.
        """
        long_texts = settings.long_texts or TRUNCATE
        if long_texts == TRUNCATE:
            return None
        stride = settings.doc_stride
        pooling = settings.pooling
        if (
            long_texts != WINDOWS
            or pooling not in WINDOW_POOLINGS
            or not isinstance(stride, int)
            or stride < 1
        ):
            raise InputError(
                f"--long_texts={long_texts}, --doc_stride={stride}, --pooling={pooling}: give "
                f"{WINDOWS}, a positive stride and one of {', '.join(WINDOW_POOLINGS)}, or restore "
                "the record of the model"
            )
        return cls(stride, pooling)

    def encode_windows(
        self, tokenizer: FullTokenizer, text: str, max_seq_length: int
    ) -> list[tuple[list[int], int]]:
        """Cut a text into windows, `[CLS] window [SEP]`.

        Args:
            tokenizer: the tokenizer of the model.
            text: the text.
            max_seq_length: the largest length of a window in tokens, [CLS] and [SEP] included.

        Returns:
            The ids of each window, and their number. An empty text has one window.
        """
        ids = tokenizer.encode(text)
        max_tokens = max(1, max_seq_length - 2)
        cls_id = tokenizer.vocab["[CLS]"]
        sep_id = tokenizer.vocab["[SEP]"]
        windows = []
        for start, length in doc_spans(len(ids), max_tokens, self.doc_stride) or [(0, 0)]:
            window = [cls_id, *ids[start : start + length], sep_id]
            windows.append((window, len(window)))
        return windows

    def pool(self, values: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Pool the values of each text's windows.

        Args:
            values: the values of all windows in the order of the texts, float32[windows, ...].
            counts: the number of windows of each text, int[texts].

        Returns:
            The pooled values, float32[texts, ...].
        """
        starts = _first_windows(counts)
        if self.pooling == "first":
            return values[starts]
        if self.pooling == "max":
            return np.maximum.reduceat(values, starts)
        divisors = _broadcastable(counts.astype(values.dtype), values)
        return np.add.reduceat(values, starts) / divisors

    def pool_in_graph(self, values: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
        """Pool the values of each text's windows in a graph.

        Args:
            values: the values of all windows in the order of the texts, float32[windows, K].
            texts: the index of each window's text, int32[windows].

        Returns:
            The pooled values, float32[texts, K].
        """
        import tensorflow as tf

        if self.pooling == "first":
            previous_texts = tf.concat([[-1], texts[:-1]], axis=0)
            return tf.boolean_mask(values, previous_texts != texts)
        if self.pooling == "max":
            return tf.math.segment_max(values, texts)
        return tf.math.segment_mean(values, texts)

    def pool_outputs(
        self, outputs: Outputs, counts: np.ndarray, recompute: Callable[[np.ndarray], Outputs]
    ) -> Outputs:
        """Compute the outputs for texts from the outputs for their windows.

        Args:
            outputs: the outputs of the model for all windows, each [windows, ...].
            counts: the number of windows of each text, int[texts].
            recompute: computes the outputs that depend on the logits or scores from pooled ones. A
                text of one window keeps the outputs of the model.

        Returns:
            The outputs for the texts, each [texts, ...].
        """
        starts = _first_windows(counts)
        pooled = {name: values[starts] for name, values in outputs.items()}
        pooled_name = "score" if "score" in outputs else "logits"
        pooled[pooled_name] = self.pool(outputs[pooled_name], counts)
        for name, values in recompute(pooled[pooled_name]).items():
            has_several_windows = _broadcastable(counts > 1, values)
            model_values = pooled[name]
            chosen = np.where(has_several_windows, values, model_values)
            pooled[name] = chosen.astype(model_values.dtype)
        return pooled


def _first_windows(counts: np.ndarray) -> np.ndarray:
    """Returns the index of each text's first window, int[texts]."""
    return np.cumsum(counts) - counts


def _broadcastable(text_values: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Appends axes of length 1 to [texts], so that it broadcasts with values [texts, ...]."""
    return text_values.reshape(-1, *[1] * (values.ndim - 1))
