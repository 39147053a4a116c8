"""The model of embeddings: an encoder, the pooling of its last layer, and what follows it."""

import keras
from keras import ops

from official_bert.config import BertConfig
from official_bert.modeling.configured_model import PACKAGE
from official_bert.modeling.heads import HeadedModel, pooled
from official_bert.modeling.layers import Dense

_SMALLEST_NORM = 1e-12  # of a vector that is divided by its norm


def normalized(vectors):
    """Divides float32[B, hidden] by their norms, so that a product of two is the cosine of their
    angle.
    """
    norms = ops.sqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True))
    return vectors / ops.maximum(norms, _SMALLEST_NORM)


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertEmbedder(HeadedModel):
    """A model of sentence vectors, pooled from the last layer. Reimers and Gurevych (2019)."""

    default_name = "embedder"
    unused_weights = ("bert/pooler",)

    def __init__(
        self,
        config: BertConfig,
        pooling: str = "mean",
        projection: int | None = None,
        normalize: bool = True,
        use_one_hot_embeddings: bool = False,
        name: str | None = None,
        recompute_layers: bool = False,
    ):
        """Builds the model and draws its weights; other arguments are those of BertModel.

        Args:
            pooling: a key of POOLINGS: how the vectors of the tokens become one.
            projection: the width of a linear layer behind the pooling; None for none.
            normalize: whether the vectors are divided by their norms.
        """
        self.pooling, self.projection_width, self.normalize = pooling, projection, normalize
        super().__init__(config, use_one_hot_embeddings, name, recompute_layers)

    def build(self, input_shape=None):
        if self.projection_width:
            self.projection = Dense(self.projection_width, self.config, name="projection")
            self.projection.build((None, self.config.hidden_size))

    def get_config(self):
        settings = {
            "pooling": self.pooling,
            "projection": self.projection_width,
            "normalize": self.normalize,
        }
        return super().get_config() | settings

    def call(self, features, training=None, dropout_seed=None):
        """Returns float32[B, width]; the arguments are those of BertClassifier."""
        first_only = self.pooling == "cls"
        encoded = self.bert(
            features, training=training, dropout_seed=dropout_seed, first_token_only=first_only
        )
        mask = features.get("input_mask")
        mask = ops.ones_like(features["input_ids"]) if mask is None else mask
        vectors = pooled(self.pooling, encoded.sequence_output, mask)
        if self.projection_width:
            vectors = ops.cast(self.projection(vectors), "float32")
        return normalized(vectors) if self.normalize else vectors
