"""The model of sparse embeddings: a masked LM, and the largest logit of each word over the tokens.

B batch   S length   V vocabulary
"""

from typing import Any

import keras
from keras import ops

from official_bert.config import BertConfig
from official_bert.extensions.sparse import vocabulary_max
from official_bert.extensions.sparse.options import IDF, MODEL
from official_bert.modeling import BertModel
from official_bert.modeling.configured_model import PACKAGE
from official_bert.modeling.heads import HeadedModel, MaskedLmHead
from official_bert.modeling.layers import Scope, Tensor, float32_weight


class QueryLookup(keras.layers.Layer):
    """A weight for each word of the vocabulary, which encodes queries without an encoder."""

    def __init__(self, vocab_size: int, trainable: bool, name: str = "query_lookup"):
        super().__init__(name=name, dtype="float32", trainable=trainable)
        self.vocab_size = vocab_size

    def build(self, input_shape: Any = None) -> None:
        """Create the weights, all 1.

        Args:
            input_shape: does not matter.
        """
        self.weights_by_word = float32_weight(self, "weights", (self.vocab_size,), "ones")

    def call(self, input_ids: Tensor, input_mask: Tensor) -> Tensor:
        """Return the weights of the words of texts, 0 for other words, float32[B, V].

        Args:
            input_ids: int32[B, S], with [CLS] first and [SEP] last, which are not counted.
            input_mask: int32[B, S], 1 for a token and 0 for padding.
        """
        # The last token has none behind it.
        has_next = ops.pad(input_mask[:, 1:], ((0, 0), (0, 1)))
        is_first = ops.arange(ops.shape(input_ids)[1]) == 0
        is_word = ops.logical_and(has_next > 0, ops.logical_not(is_first))
        # Other tokens count for an additional word, which is left out.
        words = ops.where(is_word, input_ids, self.vocab_size)
        rows = ops.zeros_like(words) + ops.arange(ops.shape(words)[0], dtype="int32")[:, None]
        places = ops.reshape(ops.stack([rows, words], axis=-1), (-1, 2))
        presence = ops.scatter_update(
            ops.zeros((ops.shape(words)[0], self.vocab_size + 1)),
            places,
            ops.ones_like(places[:, 0], dtype="float32"),
        )
        return presence[:, : self.vocab_size] * self.weights_by_word


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertSparseEncoder(HeadedModel):
    """A model of weights for the words of the vocabulary. Formal et al. (2021), SPLADE v2.

    Attributes:
        pools_by_text: whether the logits of one text are in memory at a time, by operations that
            XLA and the converters of exports do not have.
    """

    default_name = "sparse_encoder"
    bilstm_class = BertModel  # a masked LM has none

    def __init__(
        self,
        config: BertConfig,
        query_encoder: str = MODEL,
        activation: str = "relu",
        use_one_hot_embeddings: bool = False,
        name: str | None = None,
        recompute_layers: bool = False,
    ):
        """Builds the model and draws its weights.

        Args:
            config: the sizes of the encoder.
            query_encoder: one of QUERY_ENCODERS: how queries are encoded.
            activation: one of ACTIVATIONS: the weight of a word by its largest logit.
            use_one_hot_embeddings: whether a product replaces the look-up of word embeddings.
            name: the name of the model; None for "sparse_encoder".
            recompute_layers: whether the backward pass computes the layers again to save memory.
        """
        self.pools_by_text = False
        self.query_encoder = query_encoder
        self.activation = activation
        super().__init__(config, use_one_hot_embeddings, name, recompute_layers)

    @property
    def unused_weights(self) -> tuple[str, ...]:
        """The prefixes of the names of weights that are not trained."""
        pooler = "bert/pooler"
        return (pooler, "query_lookup/") if self.query_encoder == IDF else (pooler,)

    def build(self, input_shape: Any = None) -> None:
        """Create the weights of the head and of the look-up of queries.

        Args:
            input_shape: does not matter, because the configuration has the sizes.
        """
        self.cls = Scope("cls", predictions=MaskedLmHead(self.config))
        self.cls.build((None, self.config.hidden_size))
        if self.query_encoder != MODEL:
            self.query_lookup = QueryLookup(
                self.config.vocab_size, trainable=self.query_encoder != IDF
            )
            self.query_lookup.build()

    def get_config(self) -> dict:
        """Return the arguments of the model, for Keras."""
        return super().get_config() | {
            "query_encoder": self.query_encoder,
            "activation": self.activation,
        }

    def call(
        self,
        features: dict[str, Tensor],
        training: bool | None = None,
        dropout_seed: Tensor | None = None,
    ) -> Tensor:
        """Return the weights of all words of the vocabulary for texts.

        Args:
            features: the inputs of the encoder, int32[B, S], by name.
            training: whether dropout is applied; None for Keras's choice.
            dropout_seed: the seed of the dropout masks, int32[2]; None for a random one.

        Returns:
            float32[B, V], not negative.
        """
        encoded = self.bert(features, training=training, dropout_seed=dropout_seed)
        largest = self._largest_logits(encoded.sequence_output, _input_mask(features))
        # The activation grows with the logit, so that that of the largest logit is the largest.
        weights = ops.log1p(ops.relu(largest))
        return ops.log1p(weights) if self.activation == "log1p_relu" else weights

    def _largest_logits(self, sequence_output: Tensor, input_mask: Tensor) -> Tensor:
        """Returns the largest logit of each word over the tokens, float32[B, V]."""
        head = self.cls.predictions
        table = self.bert.embedding_table
        if self.pools_by_text:
            x = head.transform_outputs(sequence_output, None)
            return vocabulary_max.largest_logits(x, table, head.output_bias, input_mask)
        logits = head(sequence_output, None, table)
        is_token = ops.cast(ops.expand_dims(input_mask, -1), "bool")
        return ops.max(ops.where(is_token, logits, -float("inf")), axis=1)

    def encode_queries(self, features: dict[str, Tensor], **settings: Any) -> Tensor:
        """Return the weights of all words of the vocabulary for queries, float32[B, V].

        Args:
            features: the inputs of the encoder, int32[B, S], by name.
            **settings: the further arguments of a call.
        """
        if self.query_encoder == MODEL:
            return self(features, **settings)
        return self.query_lookup(features["input_ids"], _input_mask(features))


def _input_mask(features: dict[str, Tensor]) -> Tensor:
    """Returns 1 for the tokens and 0 for padding, int32[B, S]."""
    mask = features.get("input_mask")
    return ops.ones_like(features["input_ids"]) if mask is None else mask
