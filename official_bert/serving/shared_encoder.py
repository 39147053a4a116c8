"""Computes an encoder once for several models that answer the same batch.

Each model computes its own pooler and its head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from official_bert.modeling import BertModel
from official_bert.modeling.attention import pooled_vectors
from official_bert.modeling.bert import BertOutput


class _Call(NamedTuple):
    """A call of the encoder.

    Attributes:
        features: the ids, the mask and the segments, int32[B, S] each.
        vectors: the output of the last layer, float[B, S, hidden].
    """

    features: Sequence[tf.Tensor]
    vectors: tf.Tensor


class SharedEncoder:
    """Computes the calls of several encoders with equal weights by one of them.

    An object is for one trace of a graph, and computes the calls in `layers.override_calls`. A call
    with the tensors of an earlier one has its result. Another call compares its values with those
    of the first one when the graph runs, and is computed only if they differ.
    """

    def __init__(self, encoders: Sequence[BertModel], first_token_only: bool = False):
        """Prepares the calls of a graph.

        Args:
            encoders: the encoders, whose weights are equal except those of their poolers and of the
                layers above the encoder. The first one is computed.
            first_token_only: whether the calls read only the pooled output, so that the last layer
                is computed for one token.
        """
        self._encoders = encoders
        self._first_token_only = first_token_only
        self._graph = tf.compat.v1.get_default_graph()
        self._calls: list[_Call] = []
        self._is_computing = False

    def __call__(self, layer: keras.layers.Layer, *inputs: Any) -> Any:
        """Computes the call of a layer that is one of the encoders.

        Args:
            layer: the layer.
            *inputs: the inputs of its call. Those of an encoder are the ids, the mask, the
                segments, and whether only the first token is read.

        Returns:
            The BertOutput of the encoder with the pooled output of the layer, whose
            `embedding_output` and `all_encoder_layers` are empty; None for another layer.
        """
        is_shared = any(layer is encoder for encoder in self._encoders)
        if self._is_computing or not is_shared:
            return None
        features = inputs[:-1]
        vectors = self.encode(features)
        if self._first_token_only:
            pooled = vectors[:, 0]
        else:
            pooled = pooled_vectors(vectors, features[1], layer.config.direction)
        return BertOutput(
            embedding_output=None,
            all_encoder_layers=[],
            sequence_output=vectors,
            pooled_output=layer.pooler.dense(pooled),
        )

    def encode(self, features: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns the output of the last layer, float[B, S, hidden].

        Args:
            features: the ids, the mask and the segments, int32[B, S] each.
        """
        for call in self._calls:
            if all(value is other for value, other in zip(call.features, features, strict=True)):
                return call.vectors
        if not self._calls:
            vectors = self._compute(features)
        else:
            first = self._calls[0]
            vectors = tf.cond(
                _are_equal(first.features, features),
                lambda: first.vectors,
                lambda: self._compute(features),
            )
        # The result of a call in a loop cannot be read outside of it.
        if tf.compat.v1.get_default_graph() is self._graph:
            self._calls.append(_Call(features, vectors))
        return vectors

    def _compute(self, features: Sequence[tf.Tensor]) -> tf.Tensor:
        self._is_computing = True
        try:
            output = self._encoders[0](*features, first_token_only=self._first_token_only)
        finally:
            self._is_computing = False
        return output.sequence_output


def _are_equal(features: Sequence[tf.Tensor], others: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns whether tensors have equal shapes and values, bool[]."""
    has_equal_shape = tf.reduce_all(tf.shape(features[0]) == tf.shape(others[0]))

    def have_equal_values() -> tf.Tensor:
        pairs = zip(features, others, strict=True)
        return tf.reduce_all([tf.reduce_all(value == other) for value, other in pairs])

    return tf.cond(has_equal_shape, have_equal_values, lambda: tf.constant(False))
