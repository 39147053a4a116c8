"""The accuracy of the best constant predictions on the records of an evaluation.

A model that has learnt nothing but frequencies reaches these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf


class Baselines:
    """Counts the labels of batches while they are read."""

    def __init__(self, vocab_size: int, is_left_to_right: bool = False):
        """Begins without labels.

        Args:
            vocab_size: the number of tokens.
            is_left_to_right: whether the model predicts the next token, and not masked ones.
        """
        self._vocab_size = vocab_size
        self._is_left_to_right = is_left_to_right
        self._token_counts = np.zeros(vocab_size, np.int64)
        self._sentence_counts = np.zeros(2, np.int64)

    def count(self, batches: Iterable[dict[str, tf.Tensor]]) -> Iterator[dict[str, tf.Tensor]]:
        """Yields batches, and counts their labels.

        Args:
            batches: the features of records, [B, ...].
        """
        for batch in batches:
            if self._is_left_to_right:
                self._token_counts += self._count_next_tokens(batch)
            else:
                ids = batch["masked_lm_ids"].numpy()
                weights = batch["masked_lm_weights"].numpy()
                self._token_counts += self._count_tokens(ids, weights)
                labels = batch["next_sentence_labels"].numpy()
                labels = labels.ravel().clip(0, 1)
                self._sentence_counts += np.bincount(labels, minlength=2)
            yield batch

    def _count_next_tokens(self, batch: dict[str, tf.Tensor]) -> np.ndarray:
        from official_bert.tasks.pretraining.objective import unmasked_ids

        ids = unmasked_ids(batch, self._vocab_size)
        mask = batch["input_mask"]
        return self._count_tokens(
            np.asarray(ids)[:, 1:],
            np.asarray(mask)[:, 1:],
        )

    def _count_tokens(self, ids: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Returns the number of each token, int64[vocabulary], where the weight is positive."""
        # The model refuses ids that are out of range.
        predicted = ids[weights > 0]
        predicted = predicted.clip(0, self._vocab_size - 1)
        return np.bincount(predicted, minlength=self._vocab_size)

    def describe(self) -> str:
        """Returns a sentence with the accuracy of the most frequent labels."""
        texts = []
        counts_by_name = {
            "the most frequent token": self._token_counts,
            "the more frequent next-sentence label": self._sentence_counts,
        }
        for name, counts in counts_by_name.items():
            total = counts.sum()
            if total:
                share = counts.max() / total
                texts.append(f"always {name} {share:.1%}")
        return f"Accuracy of constant predictions: {', '.join(texts) or 'none, without a label'}"
