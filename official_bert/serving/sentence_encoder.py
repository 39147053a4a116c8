"""Vectors of texts and sentences from an encoder, for search and for comparison by cosine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np
import tensorflow as tf

from official_bert.features import ENCODER_INPUTS
from official_bert.io.errors import InputError
from official_bert.modeling import BertModel
from official_bert.modeling.heads import POOLINGS, normalized, pooled
from official_bert.tokenization import FullTokenizer, listed_texts


class SentenceEncoder:
    """Encodes texts with the last layer of an encoder, as Reimers and Gurevych (2019) do.

        encoder = SentenceEncoder(folder)
        first, second = encoder.encode(["A train left.", "The train has left."])
        first @ second  # the cosine of their angle

    Its attributes are `model`, `tokenizer` and `max_seq_length`.
    """

    def __init__(
        self,
        folder: str,
        pooling: Literal["mean", "cls", "max"] = "mean",
        normalize: bool = True,
        max_seq_length: int | None = None,
    ):
        """Loads the model and its vocabulary.

        Args:
            folder: the folder of a model as for `BertModel.from_pretrained`, with vocab.txt and, for a cased model,
                tokenizer_config.json.
            pooling: "mean" of the tokens' vectors, special ones included; the vector of [CLS] ("cls"); or the "max" of
                each coordinate. It should be that with which the model was trained.
            normalize: whether the vectors are divided by their norms.
            max_seq_length: the tokens to which texts are truncated; None means the longest sequence of the model.
        """
        if pooling not in POOLINGS:
            raise InputError(f"pooling={pooling!r}: must be one of {', '.join(POOLINGS)}")
        self.model = BertModel.from_pretrained(folder)
        self.tokenizer = FullTokenizer.from_pretrained(folder)
        longest = self.model.config.max_position_embeddings
        self.max_seq_length = longest if max_seq_length is None else max_seq_length
        if self.max_seq_length > longest:
            raise InputError(
                f"max_seq_length={max_seq_length}: the model was made for sequences up to {longest} tokens"
            )
        self._pooling, self._normalize = pooling, normalize
        # One trace for all shapes.
        signature = {name: tf.TensorSpec([None, None], tf.int32) for name in ENCODER_INPUTS}
        self._encode = tf.function(self._vectors, input_signature=[signature])

    def encode(self, texts: str | Iterable[str], batch_size: int = 32) -> np.ndarray:
        """Returns the vectors of texts in their order, float32[n, hidden]; a single text is a list of one.

        The texts are encoded in batches of like length, whose size does not change the vectors.
        """
        if not isinstance(batch_size, int) or batch_size < 1:
            raise InputError(f"batch_size={batch_size!r}: must be a positive whole number")
        texts = listed_texts("texts", texts)
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))  # characters tell enough about tokens
        vectors = np.empty((len(texts), self.model.config.hidden_size), np.float32)
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            batch = [texts[row] for row in rows]
            vectors[rows] = self._encode(self.tokenizer(batch, max_seq_length=self.max_seq_length))
        return vectors

    def _vectors(self, batch: dict) -> tf.Tensor:
        """Returns float32[B, hidden] for features int32[B, S]."""
        inputs = (batch[name] for name in ENCODER_INPUTS)
        out = self.model(*inputs, first_token_only=self._pooling == "cls")
        vectors = pooled(self._pooling, out.sequence_output, batch["input_mask"])
        return normalized(vectors) if self._normalize else vectors
