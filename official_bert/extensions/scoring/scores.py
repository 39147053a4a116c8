"""Scores texts with a pre-trained model: how probable it thinks their words. The method `score` of
Predictor calls it.

The score of a text with the WordPieces w_1 ... w_n is the natural logarithm of a probability. A
model that predicts masked words gives the pseudo-log-likelihood,

    pll           sum_t ln p(w_t | all other pieces)
    within_word   sum_t ln p(w_t | all pieces but those of the same word from t on)

from a copy of the text for each t, in which [MASK] is in the place of what is not seen. The pieces
of one word give each other away; within_word does not reward that, so that a rare word of several
pieces is no likelier than a common one. A model whose attention goes from left to right gives, with
either method, sum_t ln p(w_t | w_1 ... w_t-1).

Sources: pll is of Salazar et al. (2020), arXiv:1910.14659; within_word is of Kauf and Ivanova
(2023), arXiv:2305.10588.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from official_bert.config import LEFT_TO_RIGHT
from official_bert.extensions.scoring.options import SCORE_METHODS, WITHIN_WORD
from official_bert.io.errors import InputError
from official_bert.modeling.losses import cross_entropy
from official_bert.serving.model import Export, InMemoryModel
from official_bert.tasks.pretraining.client import MASK
from official_bert.tasks.pretraining.task import PretrainingTask

_EXAMPLE_TOKENS = 128  # a batch of shorter copies has more of them


class Scorer:
    """The scores of a pre-trained model, and their sums: `total` and `num_tokens` are those of all
    texts so far.

    `most_pieces` is the number of WordPieces that the model reads of a text.
    """

    def __init__(self, model: InMemoryModel | Export, batch_size: int):
        """Prepares the masked LM head of a model.

        Args:
            model: the opened model.
            batch_size: number of copies of 128 tokens in a batch.

        Raises:
            InputError: the model is an export, or no pre-trained model that predicts words.
        """
        if not isinstance(model, InMemoryModel):
            raise InputError(
                f"{model.path}: is an export, which cannot score; give the folder of the trained "
                "model"
            )
        task, self._tokenizer = model.trained.task, model.tokenizer
        self._is_causal = model.trained.config.direction == LEFT_TO_RIGHT
        if not isinstance(task, PretrainingTask) or not (task.has_masked_lm or self._is_causal):
            raise InputError(
                f"{model.path}: has no head that predicts words; give a pre-trained model"
            )
        if not self._is_causal and MASK not in self._tokenizer.vocab:
            raise InputError(
                f"{model.path}: its vocabulary lacks {MASK}, without which no word is predicted"
            )
        self.most_pieces = model.max_seq_length - 2
        self.total, self.num_tokens = 0.0, 0
        self._tokens_at_once = batch_size * _EXAMPLE_TOKENS
        network = model.trained.model

        def log_probabilities(ids, positions, words):
            encoded = network.bert(ids)
            logits = network.cls.predictions(
                encoded.sequence_output, positions, network.bert.embedding_table
            )
            return tf.reshape(-cross_entropy(logits, tf.reshape(words, [-1])), tf.shape(positions))

        # The ids are [B, S]; the positions, and the words whose probabilities are computed, are
        # [B, P]. There is one trace for all shapes.
        signature = [tf.TensorSpec([None, None], tf.int32)] * 3
        self._log_probabilities = tf.function(log_probabilities, signature, autograph=False)

    def score(
        self,
        texts: Sequence[str],
        method: str = WITHIN_WORD,
        progress: Callable[[int], None] = lambda _: None,
    ) -> list[dict]:
        """Returns `score` and `num_tokens` of each text.

        Args:
            texts: the texts.
            method: one of SCORE_METHODS.
            progress: is called with the number of texts that are done.

        Returns:
            For each text the logarithm of its probability, and the number of WordPieces that the
            model reads of it.
        """
        if method not in SCORE_METHODS:
            raise InputError(f"method={method!r}: must be one of {', '.join(SCORE_METHODS)}")
        encoded = [self._tokenizer.encode(text) for text in texts]
        results = [{"score": 0.0, "num_tokens": min(len(ids), self.most_pieces)} for ids in encoded]
        rows_by_length: dict[int, list[int]] = {}
        for row, ids in enumerate(encoded):
            if ids:
                rows_by_length.setdefault(results[row]["num_tokens"], []).append(row)
        num_scored = 0
        for length, rows in sorted(rows_by_length.items()):  # so that nothing is padding
            cls, sep = ([self._tokenizer.vocab[name]] for name in ("[CLS]", "[SEP]"))
            ids = np.array([cls + encoded[row][:length] + sep for row in rows], np.int32)
            copies = self._causal(ids) if self._is_causal else self._masked(ids, method)
            values = np.concatenate(
                [self._log_probabilities(*batch).numpy().ravel() for batch in copies]
            )
            for row, row_values in zip(rows, values.reshape(len(rows), length), strict=True):
                results[row]["score"] = float(row_values.sum(dtype=np.float64))
            num_scored += len(rows)
            progress(num_scored)
        self.total += sum(result["score"] for result in results)
        self.num_tokens += sum(result["num_tokens"] for result in results)
        return results

    def pieces(self, text: str) -> list[int]:
        """Returns the ids of the WordPieces that the model reads of a text."""
        return list(self._tokenizer.encode(text)[: self.most_pieces])

    def is_truncated(self, text: str) -> bool:
        """Returns whether the model reads only the beginning of a text."""
        return len(self._tokenizer.encode(text)) > self.most_pieces

    @property
    def perplexity(self) -> float:
        """The perplexity of all texts so far, of masked words the pseudo-perplexity; 1.0 without
        a token.
        """
        return math.exp(-self.total / self.num_tokens) if self.num_tokens else 1.0

    def _causal(self, ids: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
        """Yields batches of texts, int32[n, S], with the positions that predict their words."""
        positions = np.arange(ids.shape[1] - 2, dtype=np.int32)
        for batch in _batches(ids, self._tokens_at_once // ids.shape[1]):
            targets = batch[:, 1:-1]
            yield batch, np.broadcast_to(positions, targets.shape), targets

    def _masked(self, ids: np.ndarray, method: str) -> Iterator[tuple[np.ndarray, ...]]:
        """Yields batches of masked copies of texts, int32[n, S]: one for each piece, of a text
        after the other.
        """
        length, mask_id = ids.shape[1], self._tokenizer.vocab[MASK]
        columns = np.arange(length)
        starts_word = np.array(
            [[not self._tokenizer.inv_vocab[one].startswith("##") for one in row] for row in ids]
        )
        words = np.cumsum(starts_word, axis=1)  # the number of each piece's word in its text
        num_copies = len(ids) * (length - 2)
        for copies in _batches(np.arange(num_copies), self._tokens_at_once // length):
            row, position = np.divmod(copies, length - 2)
            position = (position + 1)[:, None]
            is_unseen = columns == position
            if method == WITHIN_WORD:
                is_same_word = words[row] == np.take_along_axis(words[row], position, axis=1)
                is_unseen = is_same_word & (columns >= position)
            masked_ids = np.where(is_unseen, np.int32(mask_id), ids[row])
            targets = np.take_along_axis(ids[row], position, axis=1)
            yield masked_ids, position.astype(np.int32), targets


def _batches(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    size = max(1, size)
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
