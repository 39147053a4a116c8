"""Explains a prediction: how much each word of a text speaks for a label.

The method `explain` of Predictor calls this module.

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
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from keras import ops

from official_bert.features import ENCODER_INPUTS
from official_bert.io.errors import InputError
from official_bert.modeling.bert import override_word_embeddings
from official_bert.options.fine_tuning import WINDOWS
from official_bert.serving.model import BatchedModel, CheckpointModel
from official_bert.tasks.clients import Texts
from official_bert.tokenization import find_words
from official_bert.tokenizer_config import build_pair

INTEGRATED = "integrated_gradients"
TIMES_INPUT = "gradient_x_input"
PAD = "pad"
ZERO = "zero"
_NO_WORD = -1  # The word of a special token.


class Settings(NamedTuple):
    """The arguments of the method `explain` of Predictor.

    Attributes:
        label: the label to explain; None for the most probable one, or for a score.
        method: INTEGRATED or TIMES_INPUT.
        baseline: the start of integrated gradients, PAD or ZERO.
        steps: the number of steps of integrated gradients.
    """

    label: str | None
    method: str
    baseline: str
    steps: int


class _Target(NamedTuple):
    """The output to explain.

    Attributes:
        features: the inputs of the encoder, int32[1, S].
        index: the number of the label.
        rivals: the numbers of the labels of which one is right if this label is not.
    """

    features: Mapping[str, np.ndarray]
    index: int
    rivals: Sequence[int]


class Attributor:
    """The attributions of a classifier's words."""

    def __init__(
        self,
        model: BatchedModel,
        columns: Sequence[str],
        batch_size: int,
    ):
        """Prepares the explanations of a model.

        Args:
            model: the opened model of a folder, no export.
            columns: the names of the texts of a request.
            batch_size: number of steps that the model computes at once.

        Raises:
            InputError: the model has no gradients of words.
        """
        if not isinstance(model, CheckpointModel):
            raise InputError(
                f"{model.path}: is an export, which has no gradients; give the folder of the "
                "trained model"
            )
        if getattr(model.trained.task, "long_texts", None):
            raise InputError(
                f"{model.path}: pools the windows of a text (--long_texts={WINDOWS}), which cannot "
                "be explained; give a model that was trained without the flag"
            )
        self._model = model
        self._columns = columns
        self._batch_size = batch_size
        self._classifier = model.trained.model
        self._temperature = getattr(model.trained.task, "temperature", None) or 1.0

    def explain(
        self, texts: Texts, answer: Mapping[str, Any], settings: Settings
    ) -> dict[str, Any]:
        """Return the explanation of a prediction.

        Args:
            texts: the texts of a request.
            answer: the answer of the model's client to it.
            settings: the method, and the label to explain.

        Returns:
            The result of Predictor's method `explain`.

        Raises:
            InputError: the model has no such label.
        """
        scores = answer.get("probabilities", {None: answer.get("score")})
        label = settings.label
        if label is None:
            label = max(scores, key=lambda name: scores[name])
        if label not in scores:
            labels = ", ".join(str(name) for name in scores)
            raise InputError(
                f"label={label!r}: is no label of {self._model.path}, which has {labels}"
            )
        index = list(scores).index(label)
        # A model with several labels for a text has a probability for each, without rivals.
        has_one_label = "label" in answer
        rivals = []
        if has_one_label:
            rivals = [number for number in range(len(scores)) if number != index]
        words, word_numbers, features = self._encode(texts)
        target = _Target(features, index, rivals)

        is_word = word_numbers != _NO_WORD
        vectors, pad = self._read_word_embeddings(features["input_ids"][0])
        starts_at_zero = settings.method == TIMES_INPUT or settings.baseline == ZERO
        differences = vectors if starts_at_zero else vectors - pad
        path = np.where(is_word[:, None], differences, 0)
        gradient = self._average_gradient(vectors, path, target, settings)

        piece_values = (path * gradient).sum(axis=-1)[is_word]
        word_values = np.bincount(word_numbers[is_word], piece_values, len(words))
        ends = np.stack([vectors - path, vectors])
        (before, after), _ = self._compute_logit_and_gradient(ends, target)
        attributions = []
        for word, value in zip(words, word_values, strict=True):
            attributions.append({**word, "attribution": float(value)})
        return {
            "label": label,
            "score": scores[label],
            "words": attributions,
            "completeness": float(piece_values.sum() - (after - before)),
        }

    def _average_gradient(
        self,
        vectors: np.ndarray,
        path: np.ndarray,
        target: _Target,
        settings: Settings,
    ) -> np.ndarray:
        """Returns the mean gradient on the way from the baseline to the vectors.

        Args:
            vectors: the word embeddings of the pieces, float32[S, hidden].
            path: their differences from the baseline, float32[S, hidden].
            target: the output to explain.
            settings: the method, which may have no steps but the end of the way.

        Returns:
            float64[S, hidden].
        """
        shares = np.ones(1)
        if settings.method != TIMES_INPUT:
            shares = (np.arange(settings.steps) + 0.5) / settings.steps
        total = np.zeros(path.shape)
        for start in range(0, len(shares), self._batch_size):
            batch = shares[start : start + self._batch_size, None, None]
            points = vectors - (1 - batch) * path
            _, gradients = self._compute_logit_and_gradient(points, target)
            total = total + gradients.sum(axis=0, dtype=np.float64)
        return total / len(shares)

    def _read_word_embeddings(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the vectors of pieces, float32[S, hidden], and that of [PAD], [1, hidden]."""
        pad_id = self._model.tokenizer.vocab.get("[PAD]", 0)
        table = self._classifier.bert.embedding_table
        rows = ops.take(table, [pad_id, *ids], axis=0)
        vectors = np.asarray(rows, np.float32)
        return vectors[1:], vectors[:1]

    def _compute_logit_and_gradient(
        self, points: np.ndarray, target: _Target
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns F, float32[B], and dF/dx, float32[B, S, hidden].

        Args:
            points: word embeddings, [B, S, hidden].
            target: the output F.
        """
        vectors = tf.constant(points, tf.float32)
        inputs = {}
        for name, value in target.features.items():
            inputs[name] = np.repeat(value, len(points), axis=0)
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            with override_word_embeddings(vectors):
                logits = self._classifier(inputs)
            logits = logits / self._temperature
            value = logits[:, target.index]
            if target.rivals:
                rival_logits = tf.gather(logits, target.rivals, axis=1)
                value -= tf.reduce_logsumexp(rival_logits, axis=1)
        gradient = tape.gradient(value, vectors)
        return value.numpy(), gradient.numpy()

    def _encode(self, texts: Texts) -> tuple[list[dict], np.ndarray, dict[str, np.ndarray]]:
        """Returns the words of a text or a pair, and the inputs of the encoder.

        Returns:
            The words; the number of each piece's word, int64[S]; and the inputs, int32[1, S].
        """
        tokenizer = self._model.tokenizer
        words: list[dict] = []
        pieces: tuple[list, list] = ([], [])
        for name, text, text_pieces in zip(self._columns, texts, pieces, strict=False):
            for match in find_words(text):
                word = match.group()
                for piece_id in tokenizer.encode(word):
                    text_pieces.append((piece_id, len(words)))
                words.append(
                    {
                        "text": name,
                        "word": word,
                        "start": match.start(),
                        "end": match.end(),
                    }
                )
        first, second = pieces
        row, num_first = build_pair(
            first,
            second,
            self._model.max_seq_length,
            cls=(tokenizer.vocab["[CLS]"], _NO_WORD),
            sep=(tokenizer.vocab["[SEP]"], _NO_WORD),
        )
        ids, word_numbers = np.array(row).T
        mask = np.ones_like(ids)
        segments = np.arange(len(ids)) >= num_first
        features = {}
        for name, values in zip(ENCODER_INPUTS, (ids, mask, segments), strict=True):
            features[name] = np.array([values], np.int32)
        return words, word_numbers, features
