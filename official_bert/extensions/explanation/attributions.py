"""Explains an answer: how much each word of a text speaks for a label. The method `explain` of
Predictor calls it.

F is the logit of the label's probability p as it is answered, ln(p / (1 - p)), or the score of a
regression, as a function of the word embeddings x of a request's pieces; position and segment
embeddings, [CLS] and [SEP] stay as they are. The attribution of a word is the sum over its pieces
and over the coordinates of

    gradient_x_input        x * dF/dx
    integrated_gradients    (x - b) * 1/m sum_{k=1..m} dF/dx at b + (k - 1/2)/m (x - b)

where b is the baseline: for each piece the vector of [PAD], or zero. Integrated gradients are
complete: their sum is F(x) - F(b), but for an error that falls as the number m of steps grows.

Sources: Simonyan, Vedaldi and Zisserman (2013), arXiv:1312.6034, for gradients; Shrikumar et al.
(2016), arXiv:1605.01713, for their product with the input; Sundararajan, Taly and Yan (2017),
arXiv:1703.01365.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from official_bert.features import ENCODER_INPUTS
from official_bert.io.errors import InputError
from official_bert.modeling.bert import override_word_embeddings
from official_bert.options.fine_tuning import WINDOWS
from official_bert.serving.model import Export, InMemoryModel
from official_bert.tasks.clients import Texts
from official_bert.tokenization import find_words
from official_bert.tokenizer_config import build_pair

INTEGRATED, TIMES_INPUT = "integrated_gradients", "gradient_x_input"
PAD, ZERO = "pad", "zero"
_NO_WORD = -1  # the word of a special token


class Attributor:
    """The attributions of a classifier's words."""

    def __init__(self, model: InMemoryModel | Export, columns: Sequence[str], batch_size: int):
        """Takes an opened model.

        Args:
            model: the model, which must have been trained, not exported.
            columns: the names of the texts of a request.
            batch_size: number of steps that the model computes at once.

        Raises:
            InputError: the model has no gradients of words.
        """
        if not isinstance(model, InMemoryModel):
            raise InputError(
                f"{model.path}: is an export, which has no gradients; give the folder of the "
                "trained model"
            )
        if getattr(model.trained.task, "long_texts", None):
            raise InputError(
                f"{model.path}: pools the windows of a text (--long_texts={WINDOWS}), which cannot "
                "be explained; give a model that was trained without the flag"
            )
        self._model, self._columns, self._batch_size = model, columns, batch_size
        self._classifier = model.trained.model
        self._temperature = getattr(model.trained.task, "temperature", None) or 1.0

    def explain(
        self,
        texts: Texts,
        answer: Mapping[str, Any],
        *,
        label: str | None,
        method: str,
        baseline: str,
        steps: int,
    ) -> dict[str, Any]:
        """Returns what Predictor's method `explain` does.

        Args:
            texts: the texts of a request.
            answer: the answer of the model's client to it.
            label, method, baseline, steps: as for `Predictor.explain`.
        """
        scores = answer.get("probabilities", {None: answer.get("score")})
        label = max(scores, key=scores.get) if label is None else label
        if label not in scores:
            raise InputError(
                f"label={label!r}: is no label of {self._model.path}, which has "
                f"{', '.join(map(str, scores))}"
            )
        index = list(scores).index(label)
        # Of several labels each has a probability of its own.
        is_single_label = "label" in answer
        rivals = [n for n in range(len(scores)) if n != index] if is_single_label else []
        words, word_numbers, features = self._encode(texts)

        is_word = word_numbers != _NO_WORD
        vectors, pad = self._word_embeddings(features["input_ids"][0])
        is_from_zero = method == TIMES_INPUT or baseline == ZERO
        path = np.where(is_word[:, None], vectors if is_from_zero else vectors - pad, 0)
        shares = np.ones(1) if method == TIMES_INPUT else (np.arange(steps) + 0.5) / steps

        # Average the gradients on the way from the baseline to the vectors.
        gradient = 0.0
        batches = range(self._batch_size, len(shares), self._batch_size)
        for batch in np.split(shares[:, None, None], batches):
            points = vectors - (1 - batch) * path
            gradients = self._logit_and_gradient(points, features, index, rivals)[1]
            gradient = gradient + gradients.sum(axis=0, dtype=np.float64)
        gradient = gradient / len(shares)

        piece_values = (path * gradient).sum(axis=-1)[is_word]
        word_values = np.bincount(word_numbers[is_word], piece_values, len(words))
        ends = np.stack([vectors - path, vectors])
        before, after = self._logit_and_gradient(ends, features, index, rivals)[0]
        return {
            "label": label,
            "score": scores[label],
            "words": [
                word | {"attribution": float(value)}
                for word, value in zip(words, word_values, strict=True)
            ],
            "completeness": float(piece_values.sum() - (after - before)),
        }

    def _word_embeddings(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the vectors of pieces, float32[S, hidden], and that of [PAD], [1, hidden]."""
        pad_id = self._model.tokenizer.vocab.get("[PAD]", 0)
        table = self._classifier.bert.embedding_table
        pad, vectors = np.split(np.float32(ops.take(table, [pad_id, *ids], axis=0)), [1])
        return vectors, pad

    def _logit_and_gradient(
        self,
        points: np.ndarray,
        features: Mapping[str, np.ndarray],
        index: int,
        rivals: Sequence[int],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns F, float32[B], and dF/dx, float32[B, S, hidden].

        Args:
            points: word embeddings, [B, S, hidden].
            features: the inputs of the encoder, int32[1, S].
            index: the number of the label.
            rivals: the numbers of the labels of which one is right if this is not.
        """
        vectors = tf.constant(points, tf.float32)
        inputs = {name: np.repeat(value, len(points), axis=0) for name, value in features.items()}
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            with override_word_embeddings(vectors):
                logits = self._classifier(inputs)
            logits = logits / self._temperature
            value = logits[:, index]
            if rivals:
                value -= tf.reduce_logsumexp(tf.gather(logits, rivals, axis=1), axis=1)
        return value.numpy(), tape.gradient(value, vectors).numpy()

    def _encode(self, texts: Texts) -> tuple[list[dict], np.ndarray, dict[str, np.ndarray]]:
        """Returns the words of a text or a pair, the number of each piece's word, int64[S], and
        the inputs of the encoder, int32[1, S].
        """
        tokenizer, words, pieces = self._model.tokenizer, [], [[], []]
        for name, text, text_pieces in zip(self._columns, texts, pieces, strict=False):
            for match in find_words(text):
                word = match.group()
                text_pieces += [(piece_id, len(words)) for piece_id in tokenizer.encode(word)]
                words.append(
                    {"text": name, "word": word, "start": match.start(), "end": match.end()}
                )
        cls, sep = ((tokenizer.vocab[piece], _NO_WORD) for piece in ("[CLS]", "[SEP]"))
        row, num_first = build_pair(*pieces, self._model.max_seq_length, cls, sep)
        ids, word_numbers = np.array(row).T
        inputs = (ids, np.ones_like(ids), np.arange(len(ids)) >= num_first)
        features = {
            name: np.int32([value]) for name, value in zip(ENCODER_INPUTS, inputs, strict=True)
        }
        return words, word_numbers, features
