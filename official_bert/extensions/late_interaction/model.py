"""The model of late interaction: an encoder and a projection of the vectors of its tokens.

B batch   S length   D width
"""

from typing import Any

import keras
from keras import ops

from official_bert.config import BertConfig
from official_bert.modeling.configured_model import PACKAGE
from official_bert.modeling.heads import HEAD_INITIALIZER_RANGE, HeadedModel
from official_bert.modeling.layers import Tensor, create_initializer, float32_weight

_SMALLEST_NORM = 1e-12  # Vectors are divided by at least this norm.


class TokenProjection(keras.layers.Layer):
    """A linear layer without a bias, in float32."""

    def __init__(self, width: int, name: str = "token_projection"):
        super().__init__(name=name, dtype="float32")
        self.width = width

    def build(self, input_shape: Any) -> None:
        """Create the kernel.

        Args:
            input_shape: the shape of the vectors, [..., hidden].
        """
        shape = (input_shape[-1], self.width)
        initializer = create_initializer(HEAD_INITIALIZER_RANGE)
        self.kernel = float32_weight(self, "kernel", shape, initializer)

    def call(self, x: Tensor) -> Tensor:
        """Return float32[..., D].

        Args:
            x: float[..., hidden].
        """
        return ops.matmul(ops.cast(x, "float32"), self.kernel)


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertMultiVectorEncoder(HeadedModel):
    """A model of a vector of norm 1 for each token. Khattab and Zaharia (2020), ColBERT."""

    default_name = "multi_vector_encoder"
    unused_weights = ("bert/pooler",)

    def __init__(
        self,
        config: BertConfig,
        token_width: int,
        use_one_hot_embeddings: bool = False,
        name: str | None = None,
        recompute_layers: bool = False,
    ):
        """Builds the model and draws its weights.

        Args:
            config: the sizes of the encoder.
            token_width: D.
            use_one_hot_embeddings: whether a product replaces the look-up of word embeddings.
            name: the name of the model; None for "multi_vector_encoder".
            recompute_layers: whether the backward pass computes the layers again to save memory.
        """
        self.token_width = token_width
        super().__init__(config, use_one_hot_embeddings, name, recompute_layers)

    def build(self, input_shape: Any = None) -> None:
        """Create the weights of the projection.

        Args:
            input_shape: does not matter, because the configuration has the sizes.
        """
        self.token_projection = TokenProjection(self.token_width)
        self.token_projection.build((None, self.config.hidden_size))

    def get_config(self) -> dict:
        """Return the arguments of the model, for Keras."""
        return super().get_config() | {"token_width": self.token_width}

    def call(
        self,
        features: dict[str, Tensor],
        training: bool | None = None,
        dropout_seed: Tensor | None = None,
    ) -> Tensor:
        """Return the vectors of the tokens, padding included, float32[B, S, D].

        Args:
            features: the inputs of the encoder, int32[B, S], by name.
            training: whether dropout is applied; None for Keras's choice.
            dropout_seed: the seed of the dropout masks, int32[2]; None for a random one.
        """
        encoded = self.bert(features, training=training, dropout_seed=dropout_seed)
        vectors = self.token_projection(encoded.sequence_output)
        norms = ops.sqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True))
        return vectors / ops.maximum(norms, _SMALLEST_NORM)
