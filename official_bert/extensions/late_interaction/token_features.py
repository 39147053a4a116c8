"""The inputs of the encoder for queries and documents, and which of their tokens count."""

import string
from collections.abc import Mapping
from typing import NamedTuple, Self

import tensorflow as tf

from official_bert.tokenization import FullTokenizer

Features = dict[str, tf.Tensor]


class TokenRules(NamedTuple):
    """How the tokens of queries and documents are treated.

    Attributes:
        mask_id: the id of [MASK].
        sep_id: the id of [SEP].
        skipped_ids: the ids of the tokens of documents whose vectors are left out.
        query_length: the number of tokens of every query; 0 leaves queries as they are.
        attends: whether the tokens of a query attend to the [MASK] behind them.
    """

    mask_id: int
    sep_id: int
    skipped_ids: tuple[int, ...]
    query_length: int
    attends: bool

    @classmethod
    def make(
        cls, tokenizer: FullTokenizer, query_length: int, attends: bool, skips_punctuation: bool
    ) -> Self:
        """Make the rules for a vocabulary.

        Args:
            tokenizer: the tokenizer of the model.
            query_length: the number of tokens of every query; 0 leaves queries as they are.
            attends: whether the tokens of a query attend to the [MASK] behind them.
            skips_punctuation: whether the vectors of punctuation in documents are left out.
        """
        vocab = tokenizer.vocab
        marks = string.punctuation if skips_punctuation else ""
        return cls(
            mask_id=vocab["[MASK]"],
            sep_id=vocab["[SEP]"],
            skipped_ids=tuple(vocab[mark] for mark in marks if mark in vocab),
            query_length=query_length,
            attends=attends,
        )

    def expand_queries(self, features: Mapping[str, tf.Tensor]) -> tuple[Features, tf.Tensor]:
        """Return the inputs of queries, and which of their tokens count.

        Args:
            features: the inputs of the encoder, int32[B, S], by name.

        Returns:
            The inputs, int32[B, L], and float32[B, L].
        """
        ids, mask = features["input_ids"], features["input_mask"]
        if not self.query_length:
            return dict(features), tf.cast(mask, tf.float32)
        length = self.query_length
        # A truncated query also ends in [SEP].
        is_long = tf.reduce_sum(mask, axis=1, keepdims=True) > length
        missing = tf.maximum(length - tf.shape(ids)[1], 0)
        paddings = [[0, 0], [0, missing]]
        ids = tf.pad(ids, paddings)[:, :length]
        mask = tf.pad(mask, paddings)[:, :length]
        is_last = tf.range(length)[None] == length - 1
        ids = tf.where(is_long & is_last, self.sep_id, ids)
        ids = tf.where(mask > 0, ids, self.mask_id)
        inputs = {
            "input_ids": ids,
            "input_mask": tf.ones_like(mask) if self.attends else mask,
            "segment_ids": tf.zeros_like(mask),
        }
        return inputs, tf.ones_like(ids, tf.float32)

    def mark_documents(self, features: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Return which tokens of documents count, float32[B, S].

        Args:
            features: the inputs of the encoder, int32[B, S], by name.
        """
        counts = features["input_mask"] > 0
        for skipped in self.skipped_ids:
            counts = counts & (features["input_ids"] != skipped)
        return tf.cast(counts, tf.float32)
