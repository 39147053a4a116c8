"""Scores texts with a pre-trained model: how probable the model thinks their words.

The method `score` of Predictor calls this module.

The score of a text with the WordPieces w_1 ... w_n is the natural logarithm of a probability. A
model that predicts masked words gives the pseudo-log-likelihood,

    pll           sum_t ln p(w_t | all other pieces)
    within_word   sum_t ln p(w_t | all pieces but those of the same word from t on)

from a copy of the text for each t, in which [MASK] replaces the hidden pieces. The pieces of one
word give each other away. within_word does not reward that, so that a rare word of several pieces
is no likelier than a common one. A model whose attention goes from left to right gives, with either
method, sum_t ln p(w_t | w_1 ... w_t-1).

Sources: pll: Salazar et al. (2020), arXiv:1910.14659; within_word: Kauf and Ivanova (2023),
arXiv:2305.10588.
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
from official_bert.serving.model import BatchedModel, CheckpointModel
from official_bert.tasks.pretraining.client import MASK
from official_bert.tasks.pretraining.task import PretrainingTask

_EXAMPLE_TOKENS = 128  # A batch of shorter copies has more of them.
Batch = tuple[np.ndarray, np.ndarray, np.ndarray]  # Ids, positions and targets.


class Scorer:
    """The scores of a pre-trained model, and their sums.

    Attributes:
        total: the sum of the scores of all texts so far.
        num_tokens: the number of WordPieces of all texts so far.
        most_pieces: the largest number of WordPieces that the model reads of a text.
    """

    def __init__(self, model: BatchedModel, batch_size: int):
        """Prepares the masked LM head of a model.

        Args:
            model: the opened model.
            batch_size: number of copies of 128 tokens in a batch.

        Raises:
            InputError: the model is an export, or no pre-trained model that predicts words.
        """
        if not isinstance(model, CheckpointModel):
            raise InputError(
                f"{model.path}: is an export, which cannot score; give the folder of the trained "
                "model"
            )
        task = model.trained.task
        self._tokenizer = model.tokenizer
        self._is_causal = model.trained.config.direction == LEFT_TO_RIGHT
        predicts_words = isinstance(task, PretrainingTask) and (
            task.has_masked_lm or self._is_causal
        )
        if not predicts_words:
            raise InputError(
                f"{model.path}: has no head that predicts words; give a pre-trained model"
            )
        if not self._is_causal and MASK not in self._tokenizer.vocab:
            raise InputError(
                f"{model.path}: its vocabulary lacks {MASK}, without which no word is predicted"
            )
        self.most_pieces = model.max_seq_length - 2
        self.total = 0.0
        self.num_tokens = 0
        self._tokens_at_once = batch_size * _EXAMPLE_TOKENS
        self._network = model.trained.model
        # The ids are [B, S]; positions and words are [B, P]. There is one trace for all shapes.
        spec = tf.TensorSpec([None, None], tf.int32)
        self._log_probabilities = tf.function(
            self._compute_log_probabilities,
            input_signature=[spec, spec, spec],
            autograph=False,
        )

    def score(
        self,
        texts: Sequence[str],
        method: str = WITHIN_WORD,
        progress: Callable[[int], None] = lambda _: None,
    ) -> list[dict]:
        """Return `score` and `num_tokens` of each text.

        Args:
            texts: the texts.
            method: one of SCORE_METHODS.
            progress: a function that is called with the number of finished texts.

        Returns:
            For each text the logarithm of its probability, and the number of WordPieces that the
            model reads of it.

        Raises:
            InputError: there is no such method.
        """
        if method not in SCORE_METHODS:
            raise InputError(f"method={method!r}: must be one of {', '.join(SCORE_METHODS)}")
        pieces = [self.pieces(text) for text in texts]
        results = [{"score": 0.0, "num_tokens": len(ids)} for ids in pieces]
        rows_by_length: dict[int, list[int]] = {}
        for row, ids in enumerate(pieces):
            if ids:
                rows_by_length.setdefault(len(ids), []).append(row)
        num_scored = 0
        # Texts of one length make a batch without padding.
        for _, rows in sorted(rows_by_length.items()):
            row_pieces = [pieces[row] for row in rows]
            scores = self._score_equally_long(row_pieces, method)
            for row, value in zip(rows, scores, strict=True):
                results[row]["score"] = value
            num_scored += len(rows)
            progress(num_scored)
        self.total += sum(result["score"] for result in results)
        self.num_tokens += sum(result["num_tokens"] for result in results)
        return results

    def _score_equally_long(self, pieces: Sequence[list[int]], method: str) -> list[float]:
        """Returns the scores of texts with the same number of WordPieces."""
        cls_id = self._tokenizer.vocab["[CLS]"]
        sep_id = self._tokenizer.vocab["[SEP]"]
        rows = [[cls_id, *text_pieces, sep_id] for text_pieces in pieces]
        ids = np.array(rows, np.int32)
        batches = self._make_causal(ids) if self._is_causal else self._make_masked(ids, method)
        values = []
        for batch_ids, positions, words in batches:
            probabilities = self._log_probabilities(batch_ids, positions, words)
            values.append(probabilities.numpy().ravel())
        all_values = np.concatenate(values)
        table = all_values.reshape(len(pieces), -1)
        return [float(row.sum(dtype=np.float64)) for row in table]

    def _compute_log_probabilities(
        self,
        ids: tf.Tensor,
        positions: tf.Tensor,
        words: tf.Tensor,
    ) -> tf.Tensor:
        """Returns the log probabilities of words at positions, float32[B, P]."""
        bert = self._network.bert
        encoded = bert(ids)
        logits = self._network.cls.predictions(
            encoded.sequence_output,
            positions,
            bert.embedding_table,
        )
        targets = tf.reshape(words, [-1])
        losses: tf.Tensor = cross_entropy(logits, targets)
        return tf.reshape(-losses, tf.shape(positions))

    def pieces(self, text: str) -> list[int]:
        """Return the ids of the WordPieces that the model reads of a text.

        Args:
            text: the text.

        Returns:
            At most `most_pieces` ids, without [CLS] and [SEP].
        """
        ids = self._tokenizer.encode(text)
        return list(ids[: self.most_pieces])

    def is_truncated(self, text: str) -> bool:
        """Return whether the model reads only the beginning of a text.

        Args:
            text: the text.
        """
        return len(self._tokenizer.encode(text)) > self.most_pieces

    @property
    def perplexity(self) -> float:
        """The perplexity of all texts so far, 1.0 without a token.

        That of masked words is the pseudo-perplexity.
        """
        if not self.num_tokens:
            return 1.0
        return math.exp(-self.total / self.num_tokens)

    def _make_causal(self, ids: np.ndarray) -> Iterator[Batch]:
        """Yields batches of texts, int32[n, S], with the positions that predict their words."""
        length = ids.shape[1]
        positions = np.arange(length - 2, dtype=np.int32)
        for batch in _split(ids, self._tokens_at_once // length):
            targets = batch[:, 1:-1]
            batch_positions = np.broadcast_to(positions, targets.shape)
            yield batch, batch_positions, targets

    def _make_masked(self, ids: np.ndarray, method: str) -> Iterator[Batch]:
        """Yields batches of masked copies of texts, int32[n, S], a copy for each piece of a text.

        The copies of a text come before those of the next one.
        """
        num_texts, length = ids.shape
        num_pieces = length - 2
        mask_id = np.int32(self._tokenizer.vocab[MASK])
        columns = np.arange(length)
        words = self._number_words(ids)
        copies = np.arange(num_texts * num_pieces)
        for batch in _split(copies, self._tokens_at_once // length):
            rows, pieces = np.divmod(batch, num_pieces)
            positions = (pieces + 1)[:, None]
            is_hidden = columns == positions
            if method == WITHIN_WORD:
                row_words = words[rows]
                word = np.take_along_axis(row_words, positions, axis=1)
                is_hidden = (row_words == word) & (columns >= positions)
            row_ids = ids[rows]
            masked_ids = np.where(is_hidden, mask_id, row_ids)
            targets = np.take_along_axis(row_ids, positions, axis=1)
            yield masked_ids, positions.astype(np.int32), targets

    def _number_words(self, ids: np.ndarray) -> np.ndarray:
        """Returns the number of each piece's word in its text, int[n, S]."""
        vocabulary = self._tokenizer.inv_vocab
        starts_word = np.empty(ids.shape, bool)
        for row, text_ids in enumerate(ids):
            starts_word[row] = [not vocabulary[one].startswith("##") for one in text_ids]
        return np.cumsum(starts_word, axis=1)


def _split(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Yields parts of at most `size` rows, at least one."""
    size = max(1, size)
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
