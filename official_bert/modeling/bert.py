"""The whole encoder, from token ids to the output of every layer and the pooled output."""

import contextlib
import contextvars
import copy
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
from keras import ops

from official_bert import catalog
from official_bert.config import BertConfig
from official_bert.features import ENCODER_INPUTS
from official_bert.modeling.attention import pooled_vectors
from official_bert.modeling.configured_model import (
    PACKAGE,
    ConfiguredModel,
    check_config,
    training_argument,
    warn_of_backend,
)
from official_bert.modeling.encoder import Encoder
from official_bert.modeling.inputs import (
    checked_encoder_inputs,
    extension_names,
    named_features,
)
from official_bert.modeling.layers import (
    Dense,
    DenseLayer,
    Tensor,
    compute_override,
    create_initializer,
    draw_seed,
    dropout,
    layer_norm,
    to_seed,
)

# The module of TensorFlow that reads the outputs of replicas by position.
_DISTRIBUTION_MODULE = "tensorflow.python.distribute."

_word_embeddings: contextvars.ContextVar = contextvars.ContextVar("word_embeddings", default=None)


@contextlib.contextmanager
def override_word_embeddings(vectors: Tensor) -> Iterator[None]:
    """A context in which calls of a model use these vectors instead of looking up their ids.

    Args:
        vectors: the word embeddings of the batch, float[B, S, hidden].
    """
    token = _word_embeddings.set(vectors)
    try:
        yield
    finally:
        _word_embeddings.reset(token)


def _named_item(output: tuple, name: Any) -> Any:
    """Returns a field of an output by its name.

    Only TensorFlow's distribution module may use a position. For other callers of `__getitem__`, a
    position raises TypeError, because it means another field than in transformers. There, position
    0 is the last hidden state, and here it would be another tensor of the same shape.
    """
    if isinstance(name, str):
        return getattr(output, name)
    reader = sys._getframe(2).f_globals.get("__name__", "")
    if reader.startswith(_DISTRIBUTION_MODULE):
        return tuple.__getitem__(output, name)
    raise TypeError(
        f"{type(output).__name__}[{name!r}]: has other positions than an output of transformers; "
        "name the field, such as sequence_output (theirs at 0), pooled_output (theirs at 1) or "
        "all_encoder_layers"
    )


class BertOutput(NamedTuple):
    """The output of BertModel; its `all_attention_probabilities` is None.

    Read a field as `out.pooled_output` or `out["pooled_output"]`. A position raises TypeError.
    Extensions add further names: those of transformers are in extensions/huggingface_api/models.py.

    Attributes:
        embedding_output: float[B, S, hidden], the embeddings after layer norm (and dropout in
            training).
        all_encoder_layers: a list of float[B, S, hidden], the outputs of the layers from first to
            last. With `first_token_only` the last one is float[B, 1, hidden].
        sequence_output: the output of the last layer.
        pooled_output: float[B, hidden], a dense layer with tanh (or the configuration's
            `pooler_act`) applied to the first token's vector or, in a model whose attention goes
            from left to right, to the last token's.
    """

    embedding_output: Any
    all_encoder_layers: list
    sequence_output: Any
    pooled_output: Any

    # This is not a field, because an output of a Keras layer may contain only tensors.
    all_attention_probabilities = None

    def __getattr__(self, name: str) -> Any:
        return catalog.bind_member("encoder_output_members", self, name)

    def __getitem__(self, name: Any) -> Any:
        return _named_item(self, name)


class BertOutputWithAttentions(NamedTuple):
    """The output of BertModel with `output_attentions`: BertOutput and the attention probabilities.

    Attributes:
        embedding_output: as in BertOutput.
        all_encoder_layers: as in BertOutput.
        sequence_output: as in BertOutput.
        pooled_output: as in BertOutput.
        all_attention_probabilities: float[B, N, S, S] for each layer, before dropout. Entry
            (b, n, i, j) is the probability with which token i attends to token j in head n. With
            `first_token_only` the last item is float[B, N, 1, S].
    """

    embedding_output: Any
    all_encoder_layers: list
    sequence_output: Any
    pooled_output: Any
    all_attention_probabilities: list

    def __getattr__(self, name: str) -> Any:
        return catalog.bind_member("encoder_output_members", self, name)

    def __getitem__(self, name: Any) -> Any:
        return _named_item(self, name)


class Embeddings(keras.layers.Layer):
    """The sum of token, segment and position embeddings (Devlin et al., 2019, section 3).

    It computes in float32, because the gradient of a table's row is a sum over all occurrences of
    its id. The tables have the variable type of Keras' global policy.
    """

    def __init__(
        self, config: BertConfig, use_one_hot_embeddings: bool = False, name: str = "embeddings"
    ):
        """Makes a layer without weights.

        Args:
            config: the configuration of the model.
            use_one_hot_embeddings: whether word embeddings are looked up by a matrix product.
            name: the name of the layer.
        """
        super().__init__(name=name, dtype="float32")
        self.config = config
        self.use_one_hot_embeddings = use_one_hot_embeddings
        self.table_dtype = keras.config.dtype_policy().variable_dtype

    def build(self, input_shape: Any = None) -> None:
        """Makes the three tables and the layer norm.

        Args:
            input_shape: not read, because the configuration has the sizes; Keras may pass it.
        """
        config = self.config
        self.word_embeddings = self._add_table("word_embeddings", config.vocab_size)
        self.token_type_embeddings = self._add_table(
            "token_type_embeddings", config.type_vocab_size
        )
        self.position_embeddings = self._add_table(
            "position_embeddings", config.max_position_embeddings
        )
        self.norm = layer_norm()
        self.norm.build((None, None, config.hidden_size))

    def _add_table(self, name: str, num_rows: int) -> keras.Variable:
        return self.add_weight(
            (num_rows, self.config.hidden_size),
            create_initializer(self.config.initializer_range),
            dtype=self.table_dtype,
            name=name,
            autocast=False,  # Keras would cast the whole table instead of the rows of the batch
        )

    def call(
        self, input_ids: Tensor, segment_ids: Tensor, dropout_seed: Tensor | None = None
    ) -> Tensor:
        """Computes the embeddings of a batch, float[B, S, hidden].

        Args:
            input_ids: int32[B, S].
            segment_ids: int32[B, S].
            dropout_seed: int32[2]; None for no dropout.
        """
        x = ops.cast(self._look_up(input_ids), "float32")
        # One-hot, as in the original, so that a segment id outside the table adds zeros.
        one_hot = ops.one_hot(segment_ids, self.config.type_vocab_size, dtype=self.table_dtype)
        segments = ops.matmul(one_hot, self.token_type_embeddings)
        x = x + ops.cast(segments, "float32")
        positions = self.position_embeddings[: ops.shape(input_ids)[1]]
        x = x + ops.cast(positions, "float32")
        return dropout(self.norm(x), self.config.hidden_dropout_prob, dropout_seed, index=0)

    def _look_up(self, input_ids: Tensor) -> Tensor:
        """Returns the word embeddings, float[B, S, hidden], in the type of the table."""
        override = _word_embeddings.get()
        if override is not None:
            return override
        if self.use_one_hot_embeddings:
            rows = ops.one_hot(input_ids, self.config.vocab_size, dtype=self.table_dtype)
            return ops.matmul(rows, self.word_embeddings)
        return ops.take(self.word_embeddings, input_ids, axis=0)


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertModel(ConfiguredModel):
    """The bidirectional Transformer encoder (Devlin et al., 2019, section 3).

    The weights exist when the constructor returns, under the names of the original's checkpoints.

    Attributes:
        checkpoint_scope: the first part of these names. It does not depend on the model's name.
        feature_names: the keys that are read from a dict of features. A model with a head reads
            more.

    Example:
        ```python
        from official_bert import BertModel, FullTokenizer

        folder = "quickstart_output/full/bert"
        tokenizer = FullTokenizer.from_pretrained(folder)
        features = tokenizer(["A train left.", "It was sunny."], max_seq_length=32)
        output = BertModel.from_pretrained(folder)(features)
        output.pooled_output.shape  # [2, hidden_size]
        output.sequence_output.shape  # [2, 32, hidden_size]
        ```
    """

    checkpoint_scope = "bert"
    feature_names: tuple[str, ...] = ENCODER_INPUTS

    def __init__(
        self,
        config: BertConfig,
        use_one_hot_embeddings: bool = False,
        name: str = "bert",
        recompute_layers: bool = False,
        **others: Any,
    ):
        """Builds the model and draws its weights.

        Args:
            config: the sizes, activation and dropout rates; the model keeps a copy.
            use_one_hot_embeddings: whether word embeddings are looked up by a matrix product, which
                is faster on TPU.
            name: the name of the model.
            recompute_layers: whether the backward pass computes each layer again instead of keeping
                its inner values, which takes more time and less memory.
            **others: not allowed. They only give an error for arguments of the original, such as
                `is_training`.

        Raises:
            TypeError: there is an argument that BertModel does not have, or `config` is not a
                BertConfig.
        """
        if others:
            raise TypeError(
                f"{', '.join(others)}: no argument of BertModel; docs/public_names.md says what "
                "replaces the original's"
            )
        check_config(config)
        warn_of_backend()
        config.validate()
        super().__init__(name=name)
        self.config = copy.deepcopy(config)
        self.use_one_hot_embeddings = use_one_hot_embeddings
        self.recompute_layers = recompute_layers
        self.build()

    def build(self, input_shape: Any = None) -> None:
        """Makes the embeddings, the encoder and the pooler, with their weights.

        Args:
            input_shape: not read, because the configuration has the sizes; Keras may pass it.
        """
        self.embeddings = Embeddings(self.config, self.use_one_hot_embeddings)
        self.embeddings.build()
        self.encoder = Encoder(self.config, self.recompute_layers)
        self.encoder.build()
        pooler_dense = Dense(self.config.hidden_size, self.config, self.config.pooler_activation)
        self.pooler = DenseLayer("pooler", dense=pooler_dense)
        self.pooler.build((None, self.config.hidden_size))

    @property
    def embedding_table(self) -> Tensor:
        """The word embeddings, float[vocab, hidden]."""
        return self.embeddings.word_embeddings

    def __call__(  # noqa: PLR0913 - the inputs of a call
        self,
        input_ids: Any,
        input_mask: Any = None,
        segment_ids: Any = None,
        training: bool | None = None,
        dropout_seed: Any = None,
        first_token_only: bool = False,
        output_attentions: bool = False,
        **keywords: Any,
    ) -> Any:
        """Encodes a batch.

        Inputs may also be lists or arrays, and of other integer types.

        Args:
            input_ids: int32[B, S], the token ids; or a dict with `input_ids` and possibly the next
                two arguments, in which other features of records are ignored.
            input_mask: int32[B, S], 1 for a token and 0 for padding; None means all ones.
            segment_ids: int32[B, S], 0 for the first segment and 1 for the second; None means all
                zeros.
            training: whether dropout is applied; None follows the calling context, such as `fit` or
                a model around this one, and means no dropout outside of any.
            dropout_seed: int32[2], the seed of all dropout masks; None draws one if `training`.
            first_token_only: whether the last layer is computed only for the token that is pooled,
                which suffices for the pooled output.
            output_attentions: whether the output has the attention probabilities of all layers.
            **keywords: further arguments, and other names of the inputs, that extensions add.

        Returns:
            BertOutput or, with `output_attentions`, BertOutputWithAttentions.

        Raises:
            InputError: the inputs do not fit each other or the model, or a name is unknown. Values
                are checked only in eager calls.
        """
        keywords |= {"input_mask": input_mask, "segment_ids": segment_ids}
        extra_names = extension_names(type(self))
        features = named_features(input_ids, keywords, self.feature_names, extra_names)
        encoder_inputs = [features.get(name) for name in ENCODER_INPUTS]
        return super().__call__(
            *checked_encoder_inputs(self.config, *encoder_inputs),
            dropout_seed=dropout_seed,
            first_token_only=first_token_only,
            output_attentions=output_attentions,
            **training_argument(training),
        )

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
        """Computes the outputs of a batch. The arguments are those of `__call__`, checked.

        Args:
            input_ids: int32[B, S].
            input_mask: int32[B, S]; None means all ones.
            segment_ids: int32[B, S]; None means all zeros.
            training: whether dropout is applied; None means no dropout.
            dropout_seed: int32[2], the seed of all dropout masks; None draws one if `training`.
            first_token_only: whether the last layer is computed only for the token that is pooled.
            output_attentions: whether the output has the attention probabilities of all layers.

        Returns:
            BertOutput or, with `output_attentions`, BertOutputWithAttentions.
        """
        if input_mask is None:
            input_mask = ops.ones_like(input_ids)
        if segment_ids is None:
            segment_ids = ops.zeros_like(input_ids)
        inputs = (input_ids, input_mask, segment_ids, first_token_only)
        if (overridden := compute_override(self, *inputs)) is not None:
            return overridden
        dropout_seed = self._call_seed(training, dropout_seed)

        # Embeddings.
        embedded = self.embeddings(input_ids, segment_ids, dropout_seed)

        # Layers.
        layers, attentions = self.encoder(
            embedded,
            input_mask,
            dropout_seed,
            first_token_only=first_token_only,
            output_attentions=output_attentions,
        )
        last = layers[-1]

        # Pooler. With `first_token_only` the last layer has computed only the pooled token.
        direction = self.config.direction
        pooled = last[:, 0] if first_token_only else pooled_vectors(last, input_mask, direction)
        output = BertOutput(
            embedding_output=embedded,
            all_encoder_layers=layers,
            sequence_output=last,
            pooled_output=self.pooler.dense(pooled),
        )
        return BertOutputWithAttentions(*output, attentions) if output_attentions else output

    def _call_seed(self, training: bool | None, dropout_seed: Tensor | None) -> Tensor | None:
        """Returns the seed of the dropout masks of a call, int32[2]; None for no dropout."""
        rates = (self.config.hidden_dropout_prob, self.config.attention_probs_dropout_prob)
        if not training or not any(rates):
            return None
        return draw_seed() if dropout_seed is None else to_seed(dropout_seed)
