"""The embedding model: an encoder, the pooling of its last layer, and the layers behind it."""

from typing import Any

import keras
from keras import ops

from official_bert.config import BertConfig
from official_bert.data.text_examples import POOLING_START
from official_bert.features import ENCODER_INPUTS
from official_bert.modeling.configured_model import PACKAGE
from official_bert.modeling.heads import HeadedModel, pool_texts
from official_bert.modeling.layers import Dense, Tensor

_SMALLEST_NORM = 1e-12  # Vectors are divided by at least this norm.


def normalized(vectors: Tensor) -> Tensor:
    """Divide vectors by their norms, so that a product of two is the cosine of their angle.

    Args:
        vectors: float32[B, hidden].

    Returns:
        float32[B, hidden].
    """
    norms = ops.sqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True))
    return vectors / ops.maximum(norms, _SMALLEST_NORM)


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertEmbedder(HeadedModel):
    """A model of sentence vectors, pooled from the last layer. Reimers and Gurevych (2019)."""

    default_name = "embedder"
    unused_weights = ("bert/pooler",)
    feature_names = (*ENCODER_INPUTS, POOLING_START)

    def __init__(  # noqa: PLR0913 - each is named in a call
        self,
        config: BertConfig,
        pooling: str = "mean",
        projection: int | None = None,
        normalize: bool = True,
        use_one_hot_embeddings: bool = False,
        name: str | None = None,
        recompute_layers: bool = False,
    ):
        """Builds the model and draws its weights.

        Args:
            config: the sizes of the encoder.
            pooling: a key of POOLINGS: how the vectors of the tokens become one.
            projection: the width of a linear layer behind the pooling; None for none.
            normalize: whether the vectors are divided by their norms.
            use_one_hot_embeddings: whether a product replaces the look-up of word embeddings.
            name: the name of the model; None for "embedder".
            recompute_layers: whether the backward pass computes the layers again to save memory.
        """
        self.pooling = pooling
        self.projection_width = projection
        self.normalize = normalize
        super().__init__(config, use_one_hot_embeddings, name, recompute_layers)

    def build(self, input_shape: Any = None) -> None:
        """Create the weights of the projection.

        Args:
            input_shape: does not matter, because the configuration has the sizes.
        """
        if self.projection_width:
            self.projection = Dense(self.projection_width, self.config, name="projection")
            self.projection.build((None, self.config.hidden_size))

    def get_config(self) -> dict:
        """Return the arguments of the model, for Keras."""
        return super().get_config() | {
            "pooling": self.pooling,
            "projection": self.projection_width,
            "normalize": self.normalize,
        }

    def call(
        self,
        features: dict[str, Tensor],
        training: bool | None = None,
        dropout_seed: Tensor | None = None,
    ) -> Tensor:
        """Return the vectors of texts.

        Args:
            features: the inputs of the encoder, int32[B, S], by name. If there is POOLING_START,
                int32[B], the pooling leaves out the tokens before it.
            training: whether dropout is applied; None for Keras's choice.
            dropout_seed: the seed of the dropout masks, int32[2]; None for a random one.

        Returns:
            float32[B, width].
        """
        encoded = self.bert(
            features,
            training=training,
            dropout_seed=dropout_seed,
            first_token_only=self.pooling == "cls" and POOLING_START not in features,
        )
        vectors = pool_texts(self.pooling, encoded.sequence_output, features)
        if self.projection_width:
            vectors = ops.cast(self.projection(vectors), "float32")
        return normalized(vectors) if self.normalize else vectors
