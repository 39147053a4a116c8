"""The inputs of the encoder for queries and documents, and which of their tokens count."""

import string
from collections.abc import Mapping
from typing import NamedTuple, Protocol, Self

import tensorflow as tf

from official_bert.io.errors import InputError
from official_bert.tokenization import FullTokenizer

Features = dict[str, tf.Tensor]


class TokenSettings(Protocol):
    """The settings of a model that its rules follow from.

    Attributes:
        query_length: the number of tokens of every query; 0 leaves queries as they are.
        attend_to_expansion: whether the tokens of a query attend to the [MASK] behind them.
        skip_punctuation: whether the vectors of punctuation in documents are left out.
        query_marker: the word of the vocabulary behind the [CLS] of queries; "" for none.
        document_marker: that of documents.
    """

    @property
    def query_length(self) -> int: ...

    @property
    def attend_to_expansion(self) -> bool: ...

    @property
    def skip_punctuation(self) -> bool: ...

    @property
    def query_marker(self) -> str: ...

    @property
    def document_marker(self) -> str: ...


class TokenRules(NamedTuple):
    """How the tokens of queries and documents are treated.

    Attributes:
        mask_id: the id of [MASK].
        sep_id: the id of [SEP].
        skipped_ids: the ids of the tokens of documents whose vectors are left out.
        query_length: the number of tokens of every query; 0 leaves queries as they are.
        attends: whether the tokens of a query attend to the [MASK] behind them.
        longest: the maximum number of tokens of a text with its marker.
        query_marker_id: the id of the token behind the [CLS] of queries; None for no such token.
        document_marker_id: that of documents.
    """

    mask_id: int
    sep_id: int
    skipped_ids: tuple[int, ...]
    query_length: int
    attends: bool
    longest: int
    query_marker_id: int | None = None
    document_marker_id: int | None = None

    @classmethod
    def make(cls, tokenizer: FullTokenizer, settings: TokenSettings, longest: int) -> Self:
        """Make the rules for a vocabulary.

        Args:
            tokenizer: the tokenizer of the model.
            settings: the settings of the model.
            longest: the maximum number of tokens of a text.

        Raises:
            InputError: a marker is no word of the vocabulary.
        """
        vocab = tokenizer.vocab
        marks = string.punctuation if settings.skip_punctuation else ""
        skipped_ids = [vocab[mark] for mark in marks if mark in vocab]
        return cls(
            mask_id=vocab["[MASK]"],
            sep_id=vocab["[SEP]"],
            skipped_ids=tuple(skipped_ids),
            query_length=settings.query_length,
            attends=settings.attend_to_expansion,
            longest=longest,
            query_marker_id=_find_marker(vocab, "query_marker", settings.query_marker),
            document_marker_id=_find_marker(vocab, "document_marker", settings.document_marker),
        )

    def expand_queries(self, features: Mapping[str, tf.Tensor]) -> tuple[Features, tf.Tensor]:
        """Return the inputs of queries, and which of their tokens count.

        Args:
            features: the inputs of the encoder, int32[B, S], by name.

        Returns:
            The inputs, int32[B, L], and float32[B, L].
        """
        longest = max(self.longest, self.query_length)
        inputs = _insert_marker(features, self.query_marker_id, longest, self.sep_id)
        ids, mask = inputs["input_ids"], inputs["input_mask"]
        if not self.query_length:
            return inputs, tf.cast(mask, tf.float32)
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

    def mark_documents(self, features: Mapping[str, tf.Tensor]) -> tuple[Features, tf.Tensor]:
        """Return the inputs of documents, and which of their tokens count.

        Args:
            features: the inputs of the encoder, int32[B, S], by name.

        Returns:
            The inputs, int32[B, L], and float32[B, L]; L is S, or S + 1 with a marker.
        """
        inputs = _insert_marker(features, self.document_marker_id, self.longest, self.sep_id)
        counts = inputs["input_mask"] > 0
        for skipped in self.skipped_ids:
            counts = counts & (inputs["input_ids"] != skipped)
        return inputs, tf.cast(counts, tf.float32)


def _insert_marker(
    features: Mapping[str, tf.Tensor], marker_id: int | None, longest: int, sep_id: int
) -> Features:
    """Returns the inputs with a marker behind each [CLS].

    A text that becomes too long loses its last tokens before [SEP].
    """
    if marker_id is None:
        return dict(features)
    inputs = {}
    marker_values = {"input_ids": marker_id, "input_mask": 1, "segment_ids": 0}
    for name, value in marker_values.items():
        values = features[name]
        num_texts = tf.shape(values)[0]
        marker = tf.fill([num_texts, 1], value)
        first = values[:, :1]
        others = values[:, 1:]
        marked = tf.concat([first, marker, others], axis=1)
        inputs[name] = marked[:, :longest]
    ids = inputs["input_ids"]
    num_tokens = tf.reduce_sum(features["input_mask"], axis=1, keepdims=True)
    is_too_long = num_tokens + 1 > longest
    width = tf.shape(ids)[1]
    is_last = tf.range(width)[None] == longest - 1
    inputs["input_ids"] = tf.where(is_too_long & is_last, sep_id, ids)
    return inputs


def _find_marker(vocab: Mapping[str, int], flag: str, marker: str) -> int | None:
    """Returns the id of a marker; None if it is empty."""
    if not marker:
        return None
    for word in (marker, marker.strip()):
        if word in vocab:
            return vocab[word]
    raise InputError(
        f"--{flag}={marker}: is no word of the vocabulary; give one that texts do not have, such "
        "as [unused0]"
    )
