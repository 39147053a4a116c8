"""What stands on the encoder: the base of all models with a head, the layers of the heads, and the pooling of vectors.

B batch   S length   P predictions per sequence   V vocabulary
"""

import keras
from keras import ops

from official_bert.config import BertConfig
from official_bert.features import ENCODER_INPUTS
from official_bert.io.errors import InputError
from official_bert.modeling.attention import direction_of
from official_bert.modeling.bert import BertModel
from official_bert.modeling.bilstm import BiLstm
from official_bert.modeling.inputs import checked_features, given_features
from official_bert.modeling.layers import (
    create_initializer,
    dense,
    float32_weight,
    gather_indexes,
    layer_norm,
)
from official_bert.modeling.pretrained import ConfiguredModel, in_context

_SMALLEST_NORM = 1e-12  # of a vector that is divided by its norm


class HeadedModel(ConfiguredModel):
    """A model whose encoder is `bert`; a subclass builds the head and computes `call`.

    Attributes:
        feature_names: the features that may be keyword arguments of a call.
    """

    feature_names = ENCODER_INPUTS

    def __init__(self, config: BertConfig, use_one_hot_embeddings: bool, name: str):
        super().__init__(name=name)
        self.bert = BertModel(config, use_one_hot_embeddings)
        self.config, self.use_one_hot_embeddings = self.bert.config, use_one_hot_embeddings
        self.layers_on_top = self.make_bilstm()

    def make_bilstm(self) -> BiLstm | None:
        """Returns the BiLSTM between the encoder and the head, if the configuration has one."""
        if not self.config.num_layers_on_top:
            return None
        bilstm = BiLstm(self.config.num_layers_on_top, self.config.hidden_size)
        bilstm.build((None, None, self.config.hidden_size))
        return bilstm

    def __call__(self, features=None, training=None, dropout_seed=None, **keywords):
        """Checks the features and computes what `call` describes.

        Lists, arrays and tensors of other integers do as well. The features may also be keyword arguments:
        `model(**features)` is `model(features)`.

        Raises:
            InputError: as BertModel; or there are no features with `input_ids`, or a keyword argument is no feature.
        """
        for name in keywords:
            if name not in self.feature_names:
                raise InputError(
                    f"{name}: no argument of the model; it takes {', '.join(self.feature_names)}"
                )
        given = given_features(features, keywords)
        return super().__call__(self.checked(given), dropout_seed=dropout_seed, **in_context(training))

    def checked(self, given: dict) -> dict:
        """Returns the features, checked as far as their values are known."""
        return checked_features(self.config, given)

    def encoded(self, features, training, dropout_seed, first_token_only=False):
        """Returns the BertOutput of a batch of checked features; with a BiLSTM its last outputs are those above it."""
        inputs = [features.get(name) for name in ENCODER_INPUTS]
        first_token_only &= self.layers_on_top is None
        out = self.bert(
            *inputs, training=training, dropout_seed=dropout_seed, first_token_only=first_token_only
        )
        if self.layers_on_top is None:
            return out
        input_mask = ops.ones_like(inputs[0]) if inputs[1] is None else inputs[1]
        vectors = self.layers_on_top(out.sequence_output, input_mask)
        pooled = direction_of(self.config).pooled_vectors(vectors, input_mask)
        return out._replace(sequence_output=vectors, pooled_output=self.bert.pooler(pooled))


class Transform(keras.layers.Layer):
    """A dense layer with the configuration's activation, then layer norm."""

    def __init__(self, config, name: str = "transform"):
        super().__init__(name=name)
        self.config = config

    def build(self, input_shape):
        self.dense = dense(self.config.hidden_size, self.config, self.config.hidden_act)
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
    """A linear layer on the encoder's output; its weights are [out, in], as in the original's heads.

    It computes in float32 whatever the compute type is, which costs nothing with so few outputs.
    """

    def __init__(self, config, num_outputs: int, name: str):
        super().__init__(name=name, dtype="float32")
        self.config, self.num_outputs = config, num_outputs

    def build(self, input_shape=None):
        initializer = create_initializer(self.config.initializer_range)
        shape = (self.num_outputs, self.config.hidden_size)
        self.output_weights = self.add_weight(shape, initializer=initializer, name="output_weights")
        self.output_bias = self.add_weight((self.num_outputs,), initializer="zeros", name="output_bias")

    def call(self, x):
        """Returns logits, float32[..., num_outputs], for float[..., hidden]."""
        return ops.matmul(x, ops.transpose(self.output_weights)) + self.output_bias


class PretrainingHeads(keras.layers.Layer):
    """Both pre-training heads, whose variables are in the scope `cls` of a checkpoint."""

    def __init__(self, config, name: str = "cls"):
        super().__init__(name=name)
        self.config = config

    def build(self, input_shape=None):
        self.predictions = MaskedLmHead(self.config)
        self.predictions.build()
        # Class 0: the second segment follows the first; class 1: it is random.
        self.seq_relationship = LinearHead(self.config, 2, name="seq_relationship")
        self.seq_relationship.build()

    def call(self, encoded, positions, embedding_table):
        """Computes the logits of both heads.

        Args:
            encoded: a BertOutput.
            positions: int32[B, P], the masked positions; None for all.
            embedding_table: float[V, hidden], the word embeddings.

        Returns:
            Masked LM logits float32[B*P, V], or float32[B, S, V] without positions, and next-sentence logits
            float32[B, 2].
        """
        return (
            self.predictions(encoded.sequence_output, positions, embedding_table),
            self.seq_relationship(encoded.pooled_output),
        )


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
