"""Parts of models after the encoder: BiLSTMs, the base of models with a head, heads, pooling.

The heads of fine-tuning have the original's constants for dropout and initial weights; the
configuration applies to the encoder, and to the heads of pre-training.

B batch   S length   P predictions per sequence   V vocabulary   K outputs
"""

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from typing import Any

import keras
from keras import ops

from official_bert.config import BertConfig
from official_bert.data.text_examples import POOLING_START
from official_bert.features import ENCODER_INPUTS
from official_bert.io.errors import InputError
from official_bert.modeling.attention import pooled_vectors
from official_bert.modeling.bert import BertModel, BertOutput, BertOutputWithAttentions
from official_bert.modeling.configured_model import ConfiguredModel, check_config, training_argument
from official_bert.modeling.inputs import checked_features, extension_names, named_features
from official_bert.modeling.layers import (
    Dense,
    Tensor,
    compute_override,
    create_initializer,
    draw_seed,
    dropout,
    float32_weight,
    gather_indexes,
    layer_norm,
    to_seed,
)

CLASSIFIER_DROPOUT = 0.1
HEAD_INITIALIZER_RANGE = 0.02
_HEAD_DROPOUT_INDEX = 1 << 20  # larger than every index in the encoder
_SHARED_ENCODER: contextvars.ContextVar = contextvars.ContextVar("shared_encoder", default=None)


@contextlib.contextmanager
def share_encoder(encoder: BertModel) -> Iterator[None]:
    """A context in which models with a head are made on an existing encoder.

    Args:
        encoder: the encoder of all these models.
    """
    token = _SHARED_ENCODER.set(encoder)
    try:
        yield
    finally:
        _SHARED_ENCODER.reset(token)


class BiLstm(keras.layers.Layer):
    """A stack of bidirectional LSTMs, which computes in float32."""

    def __init__(self, num_layers: int, size: int, name: str = "bilstm"):
        """Makes a layer without weights.

        Args:
            num_layers: the number of BiLSTMs.
            size: the number of outputs, which is even; each direction has half of them.
            name: the name of the layer.
        """
        super().__init__(name=name, dtype="float32")
        self.num_layers, self.size = num_layers, size

    def build(self, input_shape: Any) -> None:
        """Makes the LSTMs with their weights.

        Args:
            input_shape: the shape of the input; only its last axis, the width, is read.
        """
        self.stack = [self._layer(number) for number in range(self.num_layers)]
        for layer in self.stack:
            layer.build((None, None, input_shape[-1]))
            input_shape = (*input_shape[:-1], self.size)

    def _layer(self, number: int):
        # An operation of cuDNN would tie an export to GPUs, and XLA does not compile it.
        lstm = keras.layers.LSTM(
            self.size // 2, return_sequences=True, use_cudnn=False, dtype="float32", name="lstm"
        )
        return keras.layers.Bidirectional(lstm, dtype="float32", name=f"layer_{number}")

    def call(self, x: Tensor, input_mask: Tensor) -> Tensor:
        """Returns float32[B, S, size], which is 0 at padding and does not depend on it.

        Args:
            x: float[B, S, width].
            input_mask: int32[B, S], 1 for a token and 0 for padding.
        """
        if (overridden := compute_override(self, x, input_mask)) is not None:
            return overridden
        x = ops.cast(x, "float32")
        is_token = ops.convert_to_tensor(input_mask) != 0
        for layer in self.stack:
            x = layer(x, mask=is_token)
        return ops.where(is_token[..., None], x, 0.0)


class BertWithBiLstm(BertModel):
    """An encoder with a BiLSTM above it, whose outputs are the last ones.

    The configuration has the number of its layers, `num_bilstm_layers`.
    """

    def build(self, input_shape: Any = None) -> None:
        super().build(input_shape)
        self.bilstm = BiLstm(self.config.num_layers_on_top, self.config.hidden_size)
        self.bilstm.build((None, None, self.config.hidden_size))

    def call(  # noqa: PLR0913 - the inputs of a call
        self,
        input_ids: Tensor,
        input_mask: Tensor | None = None,
        segment_ids: Tensor | None = None,
        training: bool | None = None,
        dropout_seed: Tensor | None = None,
        first_token_only: bool = False,
        output_attentions: bool = False,
    ) -> BertOutput | BertOutputWithAttentions:
        """Computes the outputs of a batch; the arguments are those of BertModel.

        The BiLSTM reads all tokens, so `first_token_only` is ignored.
        """
        out = super().call(
            input_ids,
            input_mask,
            segment_ids,
            training,
            dropout_seed,
            output_attentions=output_attentions,
        )
        input_mask = ops.ones_like(input_ids) if input_mask is None else input_mask
        vectors = self.bilstm(out.sequence_output, input_mask)
        pooled = pooled_vectors(vectors, input_mask, self.config.direction)
        return out._replace(sequence_output=vectors, pooled_output=self.pooler.dense(pooled))


class HeadedModel(ConfiguredModel):
    """A model whose encoder is `bert`; a subclass builds the head and computes `call`."""

    default_name: str
    feature_names: tuple[str, ...] = ENCODER_INPUTS  # the features that a call reads
    bilstm_class = BertWithBiLstm  # the encoder's class if the configuration has BiLSTM layers

    def __init__(
        self,
        config: BertConfig,
        use_one_hot_embeddings: bool = False,
        name: str | None = None,
        recompute_layers: bool = False,
    ):
        """Builds the model and draws its weights; arguments and errors are those of BertModel."""
        check_config(config)
        super().__init__(name=name or self.default_name)
        encoder = _SHARED_ENCODER.get()
        if encoder is None:
            encoder_class = self.bilstm_class if config.num_layers_on_top else BertModel
            encoder = encoder_class(
                config, use_one_hot_embeddings, recompute_layers=recompute_layers
            )
        self.bert = encoder
        # A head passes all its features on.
        names = dict.fromkeys((*encoder.feature_names, *self.feature_names))
        encoder.feature_names = tuple(names)
        self.config, self.use_one_hot_embeddings = self.bert.config, use_one_hot_embeddings
        self.build()

    def __call__(
        self,
        features: Any = None,
        training: bool | None = None,
        dropout_seed: Any = None,
        **keywords: Any,
    ) -> Any:
        """Checks the features and computes the outputs that `call` describes.

        `model(**features)` is `model(features)`. Extensions add other names of the inputs.

        Args:
            features: a dict of features, or the token ids alone. The values may be lists, arrays,
                or tensors of any integer type.
            training: whether dropout is applied; None follows the calling context.
            dropout_seed: int32[2], the seed of all dropout masks; None draws one if `training`.
            **keywords: features by name.

        Raises:
            InputError: the features do not fit each other or the model.
        """
        if len(getattr(training, "shape", ())):
            raise InputError(
                "training: is an array; give a mask by its name, as in model(ids, input_mask=mask)"
            )
        inputs = named_features(features, keywords, self.feature_names, extension_names(type(self)))
        return super().__call__(
            self.checked(inputs), dropout_seed=dropout_seed, **training_argument(training)
        )

    def checked(self, features: dict) -> dict:
        """Returns the features, checked as far as their values are known.

        Args:
            features: the features by name, with `input_ids`.

        Raises:
            InputError: the features do not fit each other or the model.
        """
        return checked_features(self.config, features)


def head_seed(training: bool | None, dropout_seed: Tensor | None) -> Tensor | None:
    """Returns the seed of the dropout in a call, int32[2]; None without training.

    Args:
        training: whether dropout is applied.
        dropout_seed: the seed of the caller; None draws one.
    """
    if not training:
        return None
    return draw_seed() if dropout_seed is None else to_seed(dropout_seed)


def head_dropout(config: BertConfig, x: Tensor, seed: Tensor | None) -> Tensor:
    """Applies the dropout before the head of a fine-tuned model.

    Its rate is `classifier_dropout` of the configuration or, without this field, the original's
    constant, whatever the encoder's rate is.

    Args:
        config: the configuration of the model.
        x: float of any shape.
        seed: int32[2]; None for no dropout.

    Returns:
        float32 like `x`.
    """
    rate = getattr(config, "classifier_dropout", None)
    if rate is None:
        rate = CLASSIFIER_DROPOUT
    return dropout(ops.cast(x, "float32"), rate, seed, _HEAD_DROPOUT_INDEX)


def add_output_weights(
    layer: Any, num_outputs: int, width: int, initializer_range: float | None = None
) -> None:
    """Adds the weights of a linear head, [out, in] as in the original's heads, and a bias.

    Args:
        layer: the layer or model.
        num_outputs: the number of outputs.
        width: the number of inputs.
        initializer_range: the standard deviation of the weights; None for the original's constant.
    """
    initializer = create_initializer(
        HEAD_INITIALIZER_RANGE if initializer_range is None else initializer_range
    )
    layer.output_weights = float32_weight(
        layer, "output_weights", (num_outputs, width), initializer
    )
    layer.output_bias = float32_weight(layer, "output_bias", (num_outputs,))


def linear_logits(layer: Any, x: Tensor) -> Tensor:
    """Returns logits, float32[..., K].

    Args:
        layer: a layer or model with the weights of `add_output_weights`.
        x: float32[..., width].
    """
    return ops.matmul(x, ops.transpose(layer.output_weights)) + layer.output_bias


class Transform(keras.layers.Layer):
    """A dense layer with the configuration's activation, then layer norm."""

    def __init__(self, config: BertConfig, name: str = "transform"):
        super().__init__(name=name)
        self.config = config

    def build(self, input_shape: Any) -> None:
        """Makes the dense layer and the layer norm, with their weights.

        Args:
            input_shape: the shape of the vectors, [..., hidden].
        """
        self.dense = Dense(self.config.hidden_size, self.config, self.config.hidden_act)
        self.dense.build(input_shape)
        self.norm = layer_norm()
        self.norm.build(input_shape)

    def call(self, x: Tensor) -> Tensor:
        """Returns float32[..., hidden].

        Args:
            x: float[..., hidden].
        """
        return self.norm(self.dense(x))


class MaskedLmHead(keras.layers.Layer):
    """Computes logits over the vocabulary at the masked positions.

    The word embeddings are the output weights.
    """

    def __init__(self, config: BertConfig, name: str = "predictions"):
        super().__init__(name=name)
        self.config = config

    def build(self, input_shape: Any = None) -> None:
        """Makes the transformation and the bias of the words.

        Args:
            input_shape: not read, because the configuration has the sizes; Keras may pass it.
        """
        self.transform = Transform(self.config)
        self.transform.build((None, self.config.hidden_size))
        self.output_bias = float32_weight(self, "output_bias", (self.config.vocab_size,))

    def transform_outputs(self, sequence_output: Tensor, positions: Tensor | None) -> Tensor:
        """Transforms the outputs of the encoder that predict words.

        Only the masked positions are multiplied with the vocabulary, because this product is the
        model's most expensive one.

        Args:
            sequence_output: float[B, S, hidden].
            positions: the masked positions, int32[B, P]; None for all.

        Returns:
            float[B*P, hidden] in the type of the products; float[B, S, hidden] without positions.
        """
        x = sequence_output if positions is None else gather_indexes(sequence_output, positions)
        return ops.cast(self.transform(x), self.compute_dtype)

    def call(
        self, sequence_output: Tensor, positions: Tensor | None, embedding_table: Tensor
    ) -> Tensor:
        """Computes the logits of words.

        Args:
            sequence_output: float[B, S, hidden].
            positions: the masked positions, int32[B, P]; None for all.
            embedding_table: the word embeddings, float[V, hidden].

        Returns:
            float32[B*P, V]; float32[B, S, V] without positions.
        """
        x = self.transform_outputs(sequence_output, positions)
        table = ops.cast(embedding_table, self.compute_dtype)
        return ops.cast(ops.matmul(x, ops.transpose(table)), "float32") + self.output_bias


class LinearHead(keras.layers.Layer):
    """A linear layer in a scope of its own, in float32, which costs nothing with so few outputs."""

    def __init__(self, num_outputs: int, name: str, initializer_range: float | None = None):
        super().__init__(name=name, dtype="float32")
        self.num_outputs, self.initializer_range = num_outputs, initializer_range

    def build(self, input_shape: Any) -> None:
        """Makes the weights of the logits.

        Args:
            input_shape: the shape of the input; only its last axis, the width, is read.
        """
        add_output_weights(self, self.num_outputs, input_shape[-1], self.initializer_range)

    def call(self, x: Tensor) -> Tensor:
        """Returns logits, float32[..., K].

        Args:
            x: float[..., hidden].
        """
        return linear_logits(self, x)


def pooled(pooling: str, vectors: Tensor, input_mask: Tensor) -> Tensor:
    """Returns one vector for each text, float32[B, hidden].

    Args:
        pooling: a key of POOLINGS.
        vectors: the vectors of the tokens, float[B, S, hidden].
        input_mask: int32[B, S], 1 for a token and 0 for padding.
    """
    # [B, S, 1]; LiteRT lacks a slice with a new axis.
    is_token = ops.expand_dims(ops.cast(input_mask, "float32"), -1)
    return POOLINGS[pooling](ops.cast(vectors, "float32"), is_token)


def pool_texts(pooling: str, vectors: Tensor, features: Mapping[str, Tensor]) -> Tensor:
    """Return one vector for each text.

    Args:
        pooling: a key of POOLINGS.
        vectors: the vectors of the tokens, float[B, S, hidden].
        features: `input_ids`, and if they are there `input_mask` and POOLING_START.

    Returns:
        float32[B, hidden].
    """
    mask = features.get("input_mask")
    mask = ops.ones_like(features["input_ids"]) if mask is None else mask
    if POOLING_START not in features:
        return pooled(pooling, vectors, mask)
    starts = ops.expand_dims(features[POOLING_START], -1)
    places = ops.expand_dims(ops.arange(ops.shape(mask)[1], dtype="int32"), 0)
    if pooling == "cls":  # the first token behind the prompt
        is_pooled = ops.cast(places == starts, "int32")
        return pooled("mean", vectors, is_pooled)
    is_pooled = ops.cast(places >= starts, "int32")
    return pooled(pooling, vectors, mask * is_pooled)


def _mean(vectors: Tensor, is_token: Tensor) -> Tensor:
    return ops.sum(vectors * is_token, axis=1) / ops.maximum(ops.sum(is_token, axis=1), 1.0)


def _mean_sqrt_len(vectors: Tensor, is_token: Tensor) -> Tensor:
    return _mean(vectors, is_token) * ops.sqrt(ops.sum(is_token, axis=1))


def _first(vectors: Tensor, is_token: Tensor) -> Tensor:
    return vectors[:, 0]


def _max(vectors: Tensor, is_token: Tensor) -> Tensor:
    return ops.max(ops.where(is_token > 0, vectors, -float("inf")), axis=1)


def _weighted_mean(vectors: Tensor, is_token: Tensor) -> Tensor:
    weights = is_token * (_places(vectors) + 1.0)
    return ops.sum(vectors * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1.0)


def _last(vectors: Tensor, is_token: Tensor) -> Tensor:
    places = _places(vectors)
    last = ops.max(places * is_token, axis=1, keepdims=True)
    return _mean(vectors, ops.cast(places == last, "float32"))


def _places(vectors: Tensor) -> Tensor:
    """Returns the place of each token from 0, float32[1, S, 1]."""
    places = ops.arange(ops.shape(vectors)[1], dtype="int32")
    return ops.reshape(ops.cast(places, "float32"), (1, -1, 1))


# The mean over the tokens, special ones included; the vector of [CLS]; the largest value of each
# coordinate; the sum of the tokens, divided by the square root of their number; the mean in which
# the n-th token counts n times; the vector of the last token, which is [SEP].
POOLINGS = {
    "mean": _mean,
    "cls": _first,
    "max": _max,
    "mean_sqrt_len": _mean_sqrt_len,
    "weighted_mean": _weighted_mean,
    "last": _last,
}
