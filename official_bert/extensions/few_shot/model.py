"""The model of few-shot classification: an encoder, a pooling and a linear layer."""

import keras
from keras import ops

from official_bert.config import BertConfig
from official_bert.modeling import BertClassifier
from official_bert.modeling.configured_model import PACKAGE
from official_bert.modeling.heads import linear_logits, pooled
from official_bert.modeling.layers import Tensor

_SMALLEST_NORM = 1e-12  # Vectors are divided by at least this norm.


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertFewShotClassifier(BertClassifier):
    """A classifier of the pooled vector of a text. Tunstall et al. (2022)."""

    default_name = "few_shot_classifier"
    unused_weights = ("bert/pooler",)
    huggingface_class = ""

    def __init__(  # noqa: PLR0913 - each is named in a call
        self,
        config: BertConfig,
        num_outputs: int,
        vector_pooling: str = "mean",
        normalize: bool = True,
        use_one_hot_embeddings: bool = False,
        name: str | None = None,
        recompute_layers: bool = False,
    ):
        """Builds the model and draws its weights.

        Args:
            config: the configuration of the model.
            num_outputs: the number of labels.
            vector_pooling: how the vectors of the tokens become one: a key of POOLINGS.
            normalize: whether the vector of a text is divided by its norm.
            use_one_hot_embeddings: whether word embeddings are looked up by a matrix product.
            name: the name of the model; None for `default_name`.
            recompute_layers: whether the backward pass computes each layer again.
        """
        self.vector_pooling = vector_pooling
        self.normalize = normalize
        super().__init__(config, num_outputs, use_one_hot_embeddings, name, recompute_layers)

    def get_config(self) -> dict:
        return super().get_config() | {
            "vector_pooling": self.vector_pooling,
            "normalize": self.normalize,
        }

    def vectors(
        self, features: dict, training: bool | None = None, dropout_seed: Tensor | None = None
    ) -> Tensor:
        """Computes the vectors of texts, float32[B, hidden].

        Args:
            features: the inputs of the encoder, int32[B, S], by name.
            training: whether dropout is applied; None follows the calling context.
            dropout_seed: int32[2], the seed of all dropout masks; None draws one if `training`.
        """
        encoded = self.bert(
            features,
            training=training,
            dropout_seed=dropout_seed,
            first_token_only=self.vector_pooling == "cls",
        )
        mask = features.get("input_mask")
        mask = ops.ones_like(features["input_ids"]) if mask is None else mask
        vectors = pooled(self.vector_pooling, encoded.sequence_output, mask)
        if not self.normalize:
            return vectors
        norms = ops.sqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True))
        return vectors / ops.maximum(norms, _SMALLEST_NORM)

    def call(
        self, features: dict, training: bool | None = None, dropout_seed: Tensor | None = None
    ) -> Tensor:
        """Computes the logits of a batch, float32[B, num_outputs]; the arguments are those of
        `vectors`.
        """
        return linear_logits(self, self.vectors(features, training, dropout_seed))
