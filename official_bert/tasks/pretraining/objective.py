"""The objectives of pre-training: masked LM with next sentences, and the left-to-right language
model.

Devlin et al. (2019), sections 3.1 and 5.1.
"""

import abc
import copy
from collections.abc import Mapping
from typing import Self

import numpy as np
from keras import ops

from official_bert.features import MASKED_LM_POSITIONS, select_encoder_inputs
from official_bert.modeling import BertPretrainer, vocabulary_loss
from official_bert.modeling.inputs import checked_ids
from official_bert.modeling.layers import Tensor
from official_bert.modeling.losses import cross_entropy, masked_lm_loss, next_sentence_loss
from official_bert.modeling.task_models import PretrainingOutput


class _Metrics(abc.ABC):
    """The metrics of an objective, from the sums that `loss` returns, over several batches and
    all replicas.
    """

    batch_size: int  # examples of one update, over all replicas

    def for_batches(self, number: int) -> Self:
        """Returns the objective of an update with several batches.

        Args:
            number: the number of these batches.
        """
        another = copy.copy(self)
        another.batch_size = number * self.batch_size
        return another

    def metrics(self, sums: dict[str, float], num_batches: int) -> dict[str, float]:
        """Returns the original's metrics.

        `loss` is the mean over batches, the others are means over predictions or examples, so it
        need not be their sum.
        """
        return {
            "loss": sums["loss"] / num_batches,
            **self._means(sums, num_batches * self.batch_size),
        }

    def progress(self, sums: dict[str, float], num_steps: int) -> dict[str, float]:
        """Returns the metrics of a report; those of `tensorboard_only`, such as the perplexity,
        are not in its line.
        """
        metrics = self.metrics(sums, num_steps)
        return metrics | perplexity(metrics)

    def set_metrics(self, sums: dict[str, float], num_examples: int) -> dict[str, float]:
        """Returns the metrics of a whole set, whose last batch may be smaller, as if it were one
        batch.
        """
        means = self._means(sums, num_examples)
        return {"loss": self._loss(means), **means}

    @abc.abstractmethod
    def _means(self, sums: dict[str, float], num_examples: int) -> dict[str, float]:
        """Returns the means over predictions or examples."""

    @abc.abstractmethod
    def _loss(self, means: dict[str, float]) -> float:
        """Returns the loss of one batch with these means."""


class PretrainingObjective(_Metrics):
    """The sum of both losses over the whole update. Devlin et al. (2019), section 3.1."""

    sum_names = (
        "loss",
        "masked_lm_loss",
        "masked_lm_correct",
        "masked_lm_weight",
        "next_sentence_loss",
        "next_sentence_correct",
    )
    tensorboard_only = ("masked_lm_loss", "masked_lm_perplexity", "next_sentence_loss")

    def __init__(
        self,
        pretrainer: BertPretrainer,
        batch_size: int,
        use_next_sentence_loss: bool = True,
    ):
        """Wraps a model.

        Without `use_next_sentence_loss` (section 5.1, "No NSP") the weights of the pooler and of
        the head stay as they are, and the metrics of next sentences only say how these guess.
        """
        self.pretrainer = pretrainer
        self.batch_size = batch_size
        self.use_next_sentence_loss = use_next_sentence_loss

    def totals(self, features: dict) -> dict:
        """Returns the sum of the weights, the denominator of the masked LM loss.

        Args:
            features: the features of this replica's examples.

        Returns:
            `masked_lm_weight`, float32[].
        """
        return {"masked_lm_weight": ops.sum(masked_lm_weights(features))}

    def loss(self, features: dict, totals: dict, dropout_seed: Tensor | None) -> tuple:
        """Computes this replica's share of the loss.

        Args:
            features: the features of this replica's examples.
            totals: the values of the method `totals`, summed over the replicas.
            dropout_seed: int32[2]; None for no dropout.

        Returns:
            The share, float32[], and the sums over its examples for the metrics, float32[] by name.

        Raises:
            InputError: a masked word or a label is out of range. Only known values are checked.
        """
        out = self.pretrainer(
            features, training=dropout_seed is not None, dropout_seed=dropout_seed
        )
        return self._compute_loss(out, features, totals)

    def _compute_loss(self, out: PretrainingOutput, features: dict, totals: dict) -> tuple:
        words, next_sentences = self._labels(features)
        scores = self._score_words(out, features, words)
        next_logits = out.next_sentence_logits
        next_losses = cross_entropy(next_logits, next_sentences)
        weights = _flatten(masked_lm_weights(features))
        loss = masked_lm_loss(scores.losses, weights, totals["masked_lm_weight"])
        if self.use_next_sentence_loss:
            loss += next_sentence_loss(next_losses, self.batch_size)
        return loss, {
            "loss": loss,
            "masked_lm_loss": ops.sum(scores.losses * weights),
            "masked_lm_correct": ops.sum(scores.is_correct * weights),
            "masked_lm_weight": ops.sum(weights),
            "next_sentence_loss": ops.sum(next_losses),
            "next_sentence_correct": ops.sum(is_correct(next_logits, next_sentences)),
        }

    def _score_words(
        self,
        out: PretrainingOutput,
        features: dict,
        words: Tensor,
    ) -> vocabulary_loss.WordScores:
        """Scores the masked words, int32[B*P], without the logits where that is faster."""
        return score_words(self.pretrainer, out, features[MASKED_LM_POSITIONS], words)

    def _labels(self, features: dict) -> tuple:
        """Returns the masked words, int32[B*P], and the labels, int32[B], 1 for a random second
        segment.
        """
        vocab_size = self.pretrainer.config.vocab_size
        words = checked_ids("masked_lm_ids", features["masked_lm_ids"], vocab_size, "vocab_size")
        labels = checked_ids("next_sentence_labels", features["next_sentence_labels"], 2, "classes")
        return _flatten(words), _flatten(labels)

    def _loss(self, means: dict[str, float]) -> float:
        return means["masked_lm_loss"] + (
            means["next_sentence_loss"] if self.use_next_sentence_loss else 0.0
        )

    def _means(self, sums: dict[str, float], num_examples: int) -> dict[str, float]:
        weight = sums["masked_lm_weight"]
        return {
            "masked_lm_accuracy": sums["masked_lm_correct"] / weight if weight else 0.0,
            "masked_lm_loss": sums["masked_lm_loss"] / weight if weight else 0.0,
            "next_sentence_accuracy": sums["next_sentence_correct"] / num_examples,
            "next_sentence_loss": sums["next_sentence_loss"] / num_examples,
        }


def masked_lm_weights(features: dict) -> Tensor:
    """Returns the weights of the predictions, 1.0 for a real prediction and 0.0 for padding.

    Args:
        features: the features of a batch, with `masked_lm_weights`, [B, P].

    Returns:
        float32[B, P].
    """
    return ops.convert_to_tensor(features["masked_lm_weights"], "float32")


def score_words(
    pretrainer: BertPretrainer,
    out: PretrainingOutput,
    positions: Tensor,
    words: Tensor,
) -> vocabulary_loss.WordScores:
    """Scores words by blocks of the vocabulary on CPUs, elsewhere by their logits.

    TensorFlow computes no logits in the first case, because it drops what a graph does not use.

    Args:
        pretrainer: the model.
        out: its outputs.
        positions: the positions of the words, int32[B, P].
        words: the right words, int32[B*P].
    """
    # A model that looks up embeddings by products is a model for TPUs.
    if pretrainer.use_one_hot_embeddings or not vocabulary_loss.is_available():
        return score_logits(out.masked_lm_logits, words)
    head = pretrainer.cls.predictions
    return vocabulary_loss.score_words(
        head.transform_outputs(out.encoded.sequence_output, positions),
        pretrainer.bert.embedding_table,
        head.output_bias,
        words,
    )


def score_logits(logits: Tensor, labels: Tensor) -> vocabulary_loss.WordScores:
    """Scores labels by their logits.

    Args:
        logits: float32[N, V].
        labels: int32[N].
    """
    return vocabulary_loss.WordScores(
        losses=cross_entropy(logits, labels),
        is_correct=is_correct(logits, labels),
    )


def is_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Compares the logits of labels with the largest ones.

    Args:
        logits: float[N, classes].
        labels: int32[N].

    Returns:
        float32[N], 1.0 where no class has a higher logit than the label, else 0.0.
    """
    # Keras' argmax takes a tenth of a small model's step. The loss needs the maximum anyway.
    at_label = ops.take_along_axis(logits, labels[:, None], axis=-1)
    largest = ops.max(logits, axis=-1)
    return ops.cast(at_label[:, 0] >= largest, "float32")


class LeftToRightObjective(_Metrics):
    """The mean loss of the next token over all tokens of an update but the first of each
    sequence.
    """

    sum_names = ("loss", "next_token_loss", "next_token_correct", "next_token_weight")
    tensorboard_only = ("next_token_loss", "next_token_perplexity")

    def __init__(self, pretrainer: BertPretrainer, batch_size: int):
        """Wraps a model whose attention goes from left to right; its masked LM head predicts."""
        self.pretrainer = pretrainer
        self.batch_size = batch_size

    def totals(self, features: dict) -> dict:
        """Returns the number of the predicted tokens, the denominator of the loss.

        Args:
            features: the features of this replica's examples.

        Returns:
            `next_token_weight`, float32[].
        """
        return {"next_token_weight": ops.sum(_token_weights(features))}

    def loss(self, features: dict, totals: dict, dropout_seed: Tensor | None) -> tuple:
        """Computes this replica's share of the loss, as in `PretrainingObjective`.

        Args:
            features: the features of this replica's examples; masked words are put back.
            totals: the values of the method `totals`, summed over the replicas.
            dropout_seed: int32[2]; None for no dropout.

        Returns:
            The share, float32[], and the sums for the metrics, float32[] by name.

        Raises:
            InputError: a masked word is out of range. Only known values are checked.
        """
        ids = unmasked_ids(features, self.pretrainer.config.vocab_size)  # [B, S]
        batch, length = ops.shape(ids)
        positions = ops.arange(length - 1, dtype="int32")
        positions = ops.broadcast_to(positions, (batch, length - 1))
        inputs = select_encoder_inputs(features)
        inputs["input_ids"] = ids
        inputs[MASKED_LM_POSITIONS] = positions
        out = self.pretrainer(inputs, training=dropout_seed is not None, dropout_seed=dropout_seed)
        words = _flatten(ids[:, 1:])
        weights = _flatten(_token_weights(features))
        scores = score_words(self.pretrainer, out, positions, words)
        loss = masked_lm_loss(scores.losses, weights, totals["next_token_weight"])
        return loss, {
            "loss": loss,
            "next_token_loss": ops.sum(scores.losses * weights),
            "next_token_correct": ops.sum(scores.is_correct * weights),
            "next_token_weight": ops.sum(weights),
        }

    def _loss(self, means: dict[str, float]) -> float:
        return means["next_token_loss"]

    def _means(self, sums: dict[str, float], num_examples: int) -> dict[str, float]:
        weight = sums["next_token_weight"]
        return {
            "next_token_accuracy": sums["next_token_correct"] / weight if weight else 0.0,
            "next_token_loss": sums["next_token_loss"] / weight if weight else 0.0,
        }


def perplexity(metrics: Mapping[str, float]) -> dict[str, float]:
    """Returns the perplexity of the masked words or of the next tokens.

    It is the exponential of their mean loss.

    Args:
        metrics: the metrics of an objective, with `masked_lm_loss` or `next_token_loss`.

    Returns:
        `masked_lm_perplexity` or `next_token_perplexity`; nothing if the metrics have neither loss.
    """
    with np.errstate(over="ignore"):  # inf, of a training that diverges
        return {
            f"{words}_perplexity": float(np.exp(metrics[f"{words}_loss"]))
            for words in ("masked_lm", "next_token")
            if f"{words}_loss" in metrics
        }


def unmasked_ids(features: dict, vocab_size: int) -> Tensor:
    """Returns the ids of the text, int32[B, S], with the masked words in their places again.

    Args:
        features: `input_ids`, [B, S], and `masked_lm_positions`, `masked_lm_ids` and
            `masked_lm_weights`, [B, P]; a weight of 0 marks padding.
        vocab_size: the size of the vocabulary.

    Raises:
        InputError: a masked word is not in the vocabulary. Only known values are checked.
    """
    ids = ops.cast(features["input_ids"], "int32")
    positions = ops.cast(features[MASKED_LM_POSITIONS], "int32")  # [B, P]
    words = checked_ids("masked_lm_ids", features["masked_lm_ids"], vocab_size, "vocab_size")
    # Padding predicts nothing: it puts back what is in its place.
    there = ops.take_along_axis(ids, positions, axis=1)
    weights = ops.convert_to_tensor(features["masked_lm_weights"])
    words = ops.where(weights > 0, words, there)
    batch = ops.shape(ids)[0]
    rows = ops.arange(batch, dtype="int32")
    rows = ops.broadcast_to(rows[:, None], ops.shape(positions))
    indices = ops.stack([rows, positions], axis=-1)
    return ops.scatter_update(ids, indices, words)


def _token_weights(features: dict):
    """Float32[B, S-1], 1.0 where the next position holds a token and 0.0 where it holds padding."""
    mask = ops.convert_to_tensor(features["input_mask"])
    return ops.cast(mask[:, 1:], "float32")


def _flatten(values: Tensor) -> Tensor:
    return ops.reshape(values, (-1,))
