"""The feature-based tagger of Devlin et al. (2019), section 5.3 and table 7: a BiLSTM on a frozen encoder.

It reads tokens, or the vectors that `layer_vectors` has made of them before.

B batch   S length   L chosen layers   K outputs
"""

import keras
from keras import ops

from official_bert.config import BertConfig
from official_bert.io.errors import InputError
from official_bert.modeling.bert import BertModel
from official_bert.modeling.heads import BiLstm, HeadedModel, add_output_weights, head_dropout, head_seed, linear_logits
from official_bert.modeling.layers import float32_weight
from official_bert.modeling.pretrained import PACKAGE

LAYER_VECTORS = "layer_vectors"
_EMBEDDINGS = "embeddings"
_DEFAULT_BILSTM_LAYERS = 2

# Names of --feature_layers -> the chosen encoder layers, and whether they are summed.
_CHOICES = {
    _EMBEDDINGS: (slice(0), False),
    "second_to_last": (slice(-2, -1), False),
    "last": (slice(-1, None), False),
    "weighted_sum_of_last_four": (slice(-4, None), True),
    "concat_of_last_four": (slice(-4, None), False),
    "weighted_sum_of_all": (slice(None), True),
}


class _FeatureHead(keras.layers.Layer):
    """What the tagger trains. Its scope names the layers, because vectors of other layers may have the same shape."""

    def __init__(self, config: BertConfig, num_outputs: int, num_layers_read: int, is_sum: bool, size: int, name: str):
        super().__init__(name=name, dtype="float32")
        self.config, self.num_outputs, self.is_sum = config, num_outputs, is_sum
        self.num_layers_read, self.size = num_layers_read, size

    def build(self, input_shape=None):
        if self.is_sum:
            # Zeros: at first all layers count alike.
            self.sum_weights = float32_weight(self, "sum_weights", (self.num_layers_read,))
        self.bilstm = BiLstm(self.config.num_layers_on_top or _DEFAULT_BILSTM_LAYERS, self.size)
        width = self.config.hidden_size * (1 if self.is_sum else self.num_layers_read)
        self.bilstm.build((None, None, width))
        add_output_weights(self, self.num_outputs, self.size, prefix="")

    def call(self, vectors, input_mask, dropout_seed=None):
        """Returns float32[B, S, K] for float32[B, S, L, hidden]."""
        if self.is_sum:
            exponentials = ops.exp(self.sum_weights - ops.max(self.sum_weights))
            x = ops.sum(vectors * (exponentials / ops.sum(exponentials))[:, None], axis=2)
        else:
            x = ops.reshape(vectors, (*ops.shape(vectors)[:2], self.bilstm.input_width))
        return linear_logits(self, head_dropout(self.config, self.bilstm(x, input_mask), dropout_seed))


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertFeatureTagger(HeadedModel):
    """A tagger that trains a BiLSTM, a linear layer and, for a weighted sum, a weight for each layer.

    The weights of a sum are a softmax, so that they add up to 1. In a model with fewer than four layers the last four
    are all layers.
    """

    default_name = "feature_tagger"
    feature_names = (*HeadedModel.feature_names, LAYER_VECTORS)
    bilstm_class = BertModel  # the BiLSTM is the head's
    unused_weights = ("bert/pooler",)
    frozen_weights = ("bert/",)

    def __init__(
        self,
        config: BertConfig,
        num_outputs: int,
        feature_layers: str,
        bilstm_size: int = 768,
        use_one_hot_embeddings: bool = False,
        name: str | None = None,
        recompute_layers: bool = False,
    ):
        """Builds the model and draws its weights, with `num_outputs` = K.

        The layers that the BiLSTM reads have a name of --feature_layers, and its output is `bilstm_size` wide, an even
        number. It has 2 layers if the configuration has no `num_bilstm_layers`. Other arguments are BertModel's.
        """
        if feature_layers not in _CHOICES:
            raise InputError(f"feature_layers: must be one of {', '.join(_CHOICES)}, got {feature_layers!r}")
        if bilstm_size < 2 or bilstm_size % 2:
            raise InputError(f"bilstm_size: must be even, half of it for each direction, got {bilstm_size}")
        self.num_outputs, self.feature_layers, self.bilstm_size = num_outputs, feature_layers, bilstm_size
        self._chosen, self._is_sum = _CHOICES[feature_layers]
        super().__init__(config, use_one_hot_embeddings, name, recompute_layers)
        self.autocast = False  # in 16 bits, vectors that were computed before stay as they are

    def build(self, input_shape=None):
        count = len(range(self.config.num_hidden_layers)[self._chosen]) or self.feature_layers == _EMBEDDINGS
        if not count:
            raise InputError(f"feature_layers: a model of one layer has no {self.feature_layers}; choose last")
        name = f"features_{self.feature_layers}"
        self.head = _FeatureHead(self.config, self.num_outputs, int(count), self._is_sum, self.bilstm_size, name)
        self.head.build()

    def get_config(self):
        arguments = {name: getattr(self, name) for name in ("num_outputs", "feature_layers", "bilstm_size")}
        return super().get_config() | arguments

    def layer_vectors(self, features):
        """Returns the outputs of the chosen layers, float32[B, S, L, hidden], without dropout and gradient."""
        encoded = self.bert(features, training=False)
        if self.feature_layers == _EMBEDDINGS:
            layers = [encoded.embedding_output]
        else:
            layers = encoded.all_encoder_layers[self._chosen]
        return ops.stop_gradient(ops.cast(ops.stack(layers, axis=2), "float32"))

    def frozen_features(self, features) -> dict:
        """Returns `layer_vectors`, which follow from frozen weights alone."""
        return {LAYER_VECTORS: self.layer_vectors(features)}

    def call(self, features, training=None, dropout_seed=None):
        """Returns float32[B, S, K]; the arguments are BertClassifier's.

        The features may have `layer_vectors`, of which the encoder then computes nothing.
        """
        vectors = features.get(LAYER_VECTORS)
        vectors = self.layer_vectors(features) if vectors is None else vectors  # [B, S, L, hidden]
        input_mask = features.get("input_mask")
        if input_mask is None:
            input_mask = ops.ones(ops.shape(vectors)[:2], "int32")
        return self.head(vectors, input_mask, head_seed(training, dropout_seed))
