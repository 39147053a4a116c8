"""BiLSTM layers on the encoder: above one that is fine-tuned, or on the outputs of a frozen one.

Devlin et al. (2019), section 5.3 and table 7: the feature-based tagger, which reads tokens, or the vectors that
`layer_vectors` has made of them before. Section 5.1: a BiLSTM between an encoder and its head.

B batch   S length   L chosen layers   K outputs
"""

import keras
from keras import ops

from official_bert.config import BertConfig
from official_bert.io.errors import InputError
from official_bert.modeling.attention import direction_of
from official_bert.modeling.bert import BertModel
from official_bert.modeling.heads import (
    HeadedModel,
    add_output_weights,
    checked_num_outputs,
    head_dropout,
    head_seed,
    linear_logits,
)
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


class BiLstm(keras.layers.Layer):
    """A stack of bidirectional LSTMs, which computes in float32; its variables are in the scope `bilstm`.

    Attributes:
        input_width: the width of its input.
        size: the width of its output.
    """

    def __init__(self, num_layers: int, size: int, name: str = "bilstm"):
        """Sets the sizes.

        Args:
            num_layers: the number of bidirectional layers.
            size: the width of the output of each, an even number: half for each direction.
            name: the scope of the variables.
        """
        super().__init__(name=name, dtype="float32")
        self.num_layers, self.size = num_layers, size

    def build(self, input_shape):
        self.input_width = input_shape[-1]
        self.stack = [self._layer(number) for number in range(self.num_layers)]
        for layer in self.stack:
            layer.build((None, None, input_shape[-1]))
            input_shape = (*input_shape[:-1], self.size)

    def _layer(self, number: int):
        # An operation of cuDNN would tie an export to GPUs, and XLA does not compile it.
        lstm = keras.layers.LSTM(self.size // 2, return_sequences=True, use_cudnn=False, dtype="float32", name="lstm")
        return keras.layers.Bidirectional(lstm, dtype="float32", name=f"layer_{number}")

    def call(self, x, input_mask):
        """Returns float32[B, S, size] for float[B, S, width], 0 at padding.

        Args:
            x: the vectors.
            input_mask: int32[B, S], 1 for a token and 0 for padding, on which no output of a token depends.
        """
        x, is_token = ops.cast(x, "float32"), ops.convert_to_tensor(input_mask) != 0
        for layer in self.stack:
            x = layer(x, mask=is_token)
        return ops.where(is_token[..., None], x, 0.0)


class BertWithBiLstm(BertModel):
    """An encoder whose last outputs are those of the BiLSTM above it, with the configuration's `num_bilstm_layers`."""

    def build(self, input_shape=None):
        super().build(input_shape)
        self.bilstm = BiLstm(self.config.num_layers_on_top, self.config.hidden_size)
        self.bilstm.build((None, None, self.config.hidden_size))

    def call(
        self,
        input_ids,
        input_mask=None,
        segment_ids=None,
        training=None,
        dropout_seed=None,
        first_token_only=False,
        output_attentions=False,
    ):
        """Computes what BertModel does; the BiLSTM reads all tokens, whatever `first_token_only` is."""
        out = super().call(
            input_ids, input_mask, segment_ids, training, dropout_seed, output_attentions=output_attentions
        )
        input_mask = ops.ones_like(input_ids) if input_mask is None else input_mask
        vectors = self.bilstm(out.sequence_output, input_mask)
        pooled = direction_of(self.config).pooled_vectors(vectors, input_mask)
        return out._replace(sequence_output=vectors, pooled_output=self.pooler.dense(pooled))


def encoder_of(config: BertConfig, use_one_hot_embeddings: bool, recompute_layers: bool) -> BertModel:
    """Returns the encoder of a fine-tuned model, with the BiLSTM above it if the configuration has one."""
    encoder_class = BertWithBiLstm if config.num_layers_on_top else BertModel
    return encoder_class(config, use_one_hot_embeddings, recompute_layers=recompute_layers)


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
        return linear_logits(self, head_dropout(self.bilstm(x, input_mask), dropout_seed))


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertFeatureTagger(HeadedModel):
    """A tagger that trains a BiLSTM, a linear layer and, for a weighted sum, a weight for each layer.

    The weights of a sum are a softmax, so that they add up to 1. In a model with fewer than four layers the last four
    are all layers.
    """

    feature_names = (*HeadedModel.feature_names, LAYER_VECTORS)
    unused_weights = ("bert/pooler",)
    frozen_weights = ("bert/",)

    def __init__(
        self,
        config: BertConfig,
        num_outputs: int,
        feature_layers: str,
        bilstm_size: int = 768,
        use_one_hot_embeddings: bool = False,
        name: str = "feature_tagger",
        recompute_layers: bool = False,
    ):
        """Builds the model and draws its weights.

        Args:
            config: the configuration of the encoder; its `num_bilstm_layers` is the number of BiLSTM layers, 2 if it
                has none.
            num_outputs: K, the number of outputs.
            feature_layers: the layers whose outputs the BiLSTM reads, by a name of --feature_layers.
            bilstm_size: the width of the BiLSTM's output, an even number.
            use_one_hot_embeddings, name, recompute_layers: as in BertModel.

        Raises:
            InputError: an argument cannot be used, or no model can be built from the configuration.
        """
        if feature_layers not in _CHOICES:
            raise InputError(f"feature_layers: must be one of {', '.join(_CHOICES)}, got {feature_layers!r}")
        if bilstm_size < 2 or bilstm_size % 2:
            raise InputError(f"bilstm_size: must be even, half of it for each direction, got {bilstm_size}")
        super().__init__(BertModel(config, use_one_hot_embeddings, recompute_layers=recompute_layers), name)
        self.autocast = False  # in 16 bits, vectors that were computed before stay as they are
        self.num_outputs, self.feature_layers = checked_num_outputs(num_outputs), feature_layers
        self.bilstm_size = bilstm_size
        self._chosen, self._is_sum = _CHOICES[feature_layers]
        if not self._num_layers_read():
            raise InputError(f"feature_layers: a model of one layer has no {feature_layers}; choose last")
        self.build()

    def _num_layers_read(self) -> int:
        if self.feature_layers == _EMBEDDINGS:
            return 1
        return len(range(self.config.num_hidden_layers)[self._chosen])

    def build(self, input_shape=None):
        self.head = _FeatureHead(
            self.config,
            self.num_outputs,
            self._num_layers_read(),
            self._is_sum,
            self.bilstm_size,
            name=f"features_{self.feature_layers}",
        )
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
        input_mask = features.get("input_mask")
        if input_mask is None:
            input_mask = ops.ones(ops.shape(vectors)[:2], "int32")
        return self.head(vectors, input_mask, head_seed(training, dropout_seed))
