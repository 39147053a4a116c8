"""What stands on the encoder: the base of all models with a head, the layers of the heads, and the pooling of vectors.

The heads of fine-tuning have the original's constants for dropout and initial weights; the configuration applies to the
encoder, and to the heads of pre-training.

B batch   S length   P predictions per sequence   V vocabulary   K outputs
"""

import keras
import numpy as np
from keras import ops

from official_bert.features import ENCODER_INPUTS
from official_bert.io.errors import InputError
from official_bert.modeling.bert import BertModel
from official_bert.modeling.dropout import draw_seed, dropout
from official_bert.modeling.inputs import checked_features, given_features
from official_bert.modeling.layers import Dense, create_initializer, float32_weight, gather_indexes, layer_norm
from official_bert.modeling.pretrained import ConfiguredModel, in_context

CLASSIFIER_DROPOUT = 0.1
HEAD_INITIALIZER_RANGE = 0.02
_HEAD_DROPOUT_INDEX = 1 << 20  # larger than every index in the encoder
_SMALLEST_NORM = 1e-12  # of a vector that is divided by its norm


class HeadedModel(ConfiguredModel):
    """A model whose encoder is `bert`; a subclass builds the head and computes `call`.

    Attributes:
        feature_names: the features that may be keyword arguments of a call.
    """

    feature_names = ENCODER_INPUTS

    def __init__(self, encoder: BertModel, name: str):
        super().__init__(name=name)
        self.bert = encoder
        self.config, self.use_one_hot_embeddings = encoder.config, encoder.use_one_hot_embeddings
        self.recompute_layers = encoder.recompute_layers

    def __call__(self, features=None, training=None, dropout_seed=None, **keywords):
        """Checks the features and computes what `call` describes.

        Lists, arrays and tensors of other integers do as well. The features may also be keyword arguments:
        `model(**features)` is `model(features)`.

        Raises:
            InputError: as BertModel; or there are no features with `input_ids`, or a keyword argument is no feature.
        """
        for name in keywords:
            if name not in self.feature_names:
                raise InputError(f"{name}: no argument of the model; it takes {', '.join(self.feature_names)}")
        given = given_features(features, keywords)
        return super().__call__(self.checked(given), dropout_seed=dropout_seed, **in_context(training))

    def checked(self, given: dict) -> dict:
        """Returns the features, checked as far as their values are known."""
        return checked_features(self.config, given)


def head_seed(training, dropout_seed):
    """Returns the seed of the dropout in a call, int32[2], which is drawn if none is given; None without training."""
    return (draw_seed() if dropout_seed is None else dropout_seed) if training else None


def head_dropout(x, seed):
    """Returns float32 like `x`, with the dropout before the head of a fine-tuned model."""
    return dropout(ops.cast(x, "float32"), CLASSIFIER_DROPOUT, seed, _HEAD_DROPOUT_INDEX)


def checked_num_outputs(num_outputs) -> int:
    """Returns the number of outputs of a head.

    Raises:
        InputError: it is no whole number from 1.
    """
    is_whole = isinstance(num_outputs, int | np.integer) and not isinstance(num_outputs, bool)
    if not is_whole or num_outputs < 1:
        raise InputError(f"num_outputs: must be a whole number from 1, got {num_outputs!r}")
    return int(num_outputs)


def add_output_weights(
    layer, num_outputs: int, width: int, initializer_range: float | None = None, prefix: str = "output_"
):
    """Adds the weights of a linear head, [out, in] as in the original's heads, and a bias to a layer or model."""
    initializer = create_initializer(HEAD_INITIALIZER_RANGE if initializer_range is None else initializer_range)
    layer.output_weights = float32_weight(layer, f"{prefix}weights", (num_outputs, width), initializer)
    layer.output_bias = float32_weight(layer, f"{prefix}bias", (num_outputs,))


def linear_logits(layer, x):
    """Returns logits, float32[..., K], for float32[..., width] and the weights of `add_output_weights`."""
    return ops.matmul(x, ops.transpose(layer.output_weights)) + layer.output_bias


class Transform(keras.layers.Layer):
    """A dense layer with the configuration's activation, then layer norm."""

    def __init__(self, config, name: str = "transform"):
        super().__init__(name=name)
        self.config = config

    def build(self, input_shape):
        self.dense = Dense(self.config.hidden_size, self.config, self.config.hidden_act)
        self.dense.build(input_shape)
        self.norm = layer_norm()
        self.norm.build(input_shape)

    def call(self, x):
        return self.norm(self.dense(x))


class MaskedLmHead(keras.layers.Layer):
    """Computes logits over the vocabulary at the masked positions, with the word embeddings as output weights."""

    def __init__(self, config, name: str = "predictions"):
        super().__init__(name=name)
        self.config = config

    def build(self, input_shape=None):
        self.transform = Transform(self.config)
        self.transform.build((None, self.config.hidden_size))
        self.output_bias = float32_weight(self, "output_bias", (self.config.vocab_size,))

    def call(self, sequence_output, positions, embedding_table):
        """Returns logits, float32[B*P, V], for float[B, S, hidden] and masked positions int32[B, P].

        Without positions, None, they are float32[B, S, V].
        """
        # Only the masked positions are multiplied: the product with the vocabulary is the model's most expensive one.
        x = sequence_output if positions is None else gather_indexes(sequence_output, positions)
        x = ops.cast(self.transform(x), self.compute_dtype)
        table = ops.cast(embedding_table, self.compute_dtype)
        return ops.cast(ops.matmul(x, ops.transpose(table)), "float32") + self.output_bias


class LinearHead(keras.layers.Layer):
    """A linear layer on the encoder's output, in a scope of its own.

    It computes in float32 whatever the compute type is, which costs nothing with so few outputs.
    """

    def __init__(self, num_outputs: int, name: str, initializer_range: float | None = None):
        super().__init__(name=name, dtype="float32")
        self.num_outputs, self.initializer_range = num_outputs, initializer_range

    def build(self, input_shape):
        add_output_weights(self, self.num_outputs, input_shape[-1], self.initializer_range)

    def call(self, x):
        """Returns logits, float32[..., K], for float[..., hidden]."""
        return linear_logits(self, x)


def pooled(pooling: str, vectors, input_mask):
    """Pools the vectors of each text.

    Args:
        pooling: a key of POOLINGS.
        vectors: float[B, S, hidden].
        input_mask: int32[B, S], 1 for a token and 0 for padding.

    Returns:
        float32[B, hidden].
    """
    is_token = ops.cast(input_mask, "float32")[:, :, None]  # [B, S, 1]
    return POOLINGS[pooling](ops.cast(vectors, "float32"), is_token)


def normalized(vectors):
    """Divides float32[B, hidden] by their norms, so that a product of two is the cosine of their angle."""
    norms = ops.sqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True))
    return vectors / ops.maximum(norms, _SMALLEST_NORM)


def _mean(vectors, is_token):
    return ops.sum(vectors * is_token, axis=1) / ops.maximum(ops.sum(is_token, axis=1), 1.0)


def _first(vectors, is_token):
    return vectors[:, 0]


def _max(vectors, is_token):
    return ops.max(ops.where(is_token > 0, vectors, -float("inf")), axis=1)


# The mean over the tokens, special ones included; the vector of [CLS]; the largest value of each coordinate.
POOLINGS = {"mean": _mean, "cls": _first, "max": _max}
