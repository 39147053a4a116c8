"""The feature-based tagger: a BiLSTM on the outputs of a frozen encoder. Devlin et al. (2019), section 5.3, table 7.

In: tokens, or the vectors that `layer_vectors` has made of them before. Out: logits for every token.

B batch   S length   L chosen layers   K outputs
"""

import keras
from keras import ops

from official_bert.config import BertConfig
from official_bert.errors import InputError
from official_bert.modeling.bilstm import BiLstm
from official_bert.modeling.configured import PACKAGE
from official_bert.modeling.dropout import draw_seed, dropout
from official_bert.modeling.headed import HeadedModel
from official_bert.modeling.layers import create_initializer, float32_weight
from official_bert.modeling.task_models import CLASSIFIER_DROPOUT, HEAD_INITIALIZER_RANGE

LAYER_VECTORS = "layer_vectors"
_DEFAULT_BILSTM_LAYERS = 2
_HEAD_DROPOUT_INDEX = 1 << 20  # larger than every index in the encoder

# Names of --feature_layers -> the chosen of [embeddings, first layer, ..., last layer], and whether they are summed.
_CHOICES = {
    "embeddings": (slice(0, 1), False),
    "second_to_last": (slice(-2, -1), False),
    "last": (slice(-1, None), False),
    "weighted_sum_of_last_four": (slice(-4, None), True),
    "concat_of_last_four": (slice(-4, None), False),
    "weighted_sum_of_all": (slice(1, None), True),
}


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertFeatureTagger(HeadedModel):
    """A tagger that trains a BiLSTM, a linear layer and, for a weighted sum, a weight for each layer.

    The weights of a sum are a softmax, so that they add up to 1. In a model with fewer than four layers the last four
    are all layers.
    """

    feature_names = (*HeadedModel.feature_names, LAYER_VECTORS)

    def __init__(
        self,
        config: BertConfig,
        num_outputs: int,
        feature_layers: str,
        bilstm_size: int = 768,
        use_one_hot_embeddings: bool = False,
        name: str = "feature_tagger",
    ):
        """Builds the model and draws its weights.

        Args:
            config: the configuration of the encoder; its `num_bilstm_layers` is the number of BiLSTM layers, 2 if it
                has none.
            num_outputs: K, the number of outputs.
            feature_layers: the layers whose outputs the BiLSTM reads, by a name of --feature_layers.
            bilstm_size: the width of the BiLSTM's output, an even number.
            use_one_hot_embeddings, name: as in BertModel.

        Raises:
            InputError: an argument cannot be used, or no model can be built from the configuration.
        """
        if feature_layers not in _CHOICES:
            raise InputError(f"feature_layers: must be one of {', '.join(_CHOICES)}, got {feature_layers!r}")
        if bilstm_size < 2 or bilstm_size % 2:
            raise InputError(f"bilstm_size: must be even, half of it for each direction, got {bilstm_size}")
        super().__init__(config, use_one_hot_embeddings, name)
        self.num_outputs, self.feature_layers, self.bilstm_size = num_outputs, feature_layers, bilstm_size
        self._layers_read, self._is_sum = _CHOICES[feature_layers]
        self.build()

    def make_bilstm(self):
        """None above the encoder's last layer: this model has a BiLSTM of its own."""

    def build(self, input_shape=None):
        config, initializer = self.config, create_initializer(HEAD_INITIALIZER_RANGE)
        count = len(range(config.num_hidden_layers + 1)[self._layers_read])
        if self._is_sum:
            self.sum_weights = float32_weight(
                self, "sum_weights", (count,)
            )  # of zeros: all layers count alike
        self.bilstm = BiLstm(config.num_layers_on_top or _DEFAULT_BILSTM_LAYERS, self.bilstm_size)
        self.bilstm.build((None, None, config.hidden_size * (1 if self._is_sum else count)))
        self.head_weights = float32_weight(
            self, "head_weights", (self.num_outputs, self.bilstm_size), initializer
        )
        self.head_bias = float32_weight(self, "head_bias", (self.num_outputs,))

    def get_config(self):
        arguments = {name: getattr(self, name) for name in ("num_outputs", "feature_layers", "bilstm_size")}
        return super().get_config() | arguments

    def layer_vectors(self, features):
        """Returns the outputs of the chosen layers, float32[B, S, L, hidden], without dropout."""
        encoded = self.encoded(features, training=False, dropout_seed=None)
        layers = [encoded.embedding_output, *encoded.all_encoder_layers][self._layers_read]
        return ops.cast(ops.stack(layers, axis=2), "float32")

    def call(self, features, training=None, dropout_seed=None):
        """Computes the logits of a batch.

        Args:
            features: as in BertClassifier, and possibly `layer_vectors`, of which the encoder then computes nothing.
            training: whether dropout is applied to the BiLSTM's output; None follows the calling context.
            dropout_seed: int32[2], the seed of the dropout mask; None draws one if `training`.

        Returns:
            float32[B, S, K].
        """
        vectors = features.get(LAYER_VECTORS)
        vectors = self.layer_vectors(features) if vectors is None else vectors  # [B, S, L, hidden]
        batch, length = ops.shape(vectors)[:2]
        if self._is_sum:
            x = ops.sum(vectors * ops.softmax(self.sum_weights)[:, None], axis=2)
        else:
            x = ops.reshape(vectors, (batch, length, self.bilstm.input_width))
        input_mask = features.get("input_mask")
        x = self.bilstm(x, ops.ones((batch, length)) if input_mask is None else input_mask)
        seed = (draw_seed() if dropout_seed is None else dropout_seed) if training else None
        x = dropout(x, CLASSIFIER_DROPOUT, seed, _HEAD_DROPOUT_INDEX)
        return ops.matmul(x, ops.transpose(self.head_weights)) + self.head_bias
