"""The encoder as a whole: ids in, the output of every layer and the pooled output out."""

import copy
from typing import Any, NamedTuple

import keras
from keras import ops

from official_bert.config import BertConfig
from official_bert.modeling.dropout import draw_seed
from official_bert.modeling.embeddings import Embeddings
from official_bert.modeling.encoder import Encoder
from official_bert.modeling.inputs import checked_encoder_inputs
from official_bert.modeling.layers import DenseLayer


class BertOutput(NamedTuple):
    """What a call of BertModel gives.

    Attributes:
        embedding_output: float[B, S, hidden], the embeddings after layer norm (and dropout in training).
        all_encoder_layers: a float[B, S, hidden] for each layer, first layer first; with `first_token_only` the last
            is float[B, 1, hidden].
        sequence_output: the last of them.
        pooled_output: float[B, hidden], tanh of a dense layer on the first token's vector.
    """

    embedding_output: Any
    all_encoder_layers: list
    sequence_output: Any
    pooled_output: Any


class BertModel(keras.Model):
    """Devlin et al. (2019), section 3: the bidirectional Transformer encoder.

        model = BertModel(BertConfig.from_json_file("bert_config.json"))
        out = model(input_ids, input_mask, segment_ids)
        out.pooled_output  # [B, hidden]

    The weights exist when the constructor returns, under the names of the original's checkpoints.
    """

    def __init__(self, config: BertConfig, use_one_hot_embeddings: bool = False, name: str = "bert"):
        """Builds the model and draws its weights.

        Args:
            config: sizes, activation and dropout rates; copied.
            use_one_hot_embeddings: look words up by a matrix product (faster on TPU).

        Raises:
            InputError: a configuration that no model can be built from.
        """
        config.validate()
        super().__init__(name=name)
        self.config = copy.deepcopy(config)
        self.use_one_hot_embeddings = use_one_hot_embeddings
        self.build()

    def build(self, input_shape=None):
        self.embeddings = Embeddings(self.config, self.use_one_hot_embeddings)
        self.embeddings.build()
        self.encoder = Encoder(self.config)
        self.encoder.build()
        self.pooler = DenseLayer(self.config, self.config.hidden_size, "tanh", name="pooler")
        self.pooler.build((None, self.config.hidden_size))

    @property
    def embedding_table(self):
        """float[vocab, hidden], the word embeddings."""
        return self.embeddings.word_embeddings

    def __call__(
        self,
        input_ids,
        input_mask=None,
        segment_ids=None,
        training=False,
        dropout_seed=None,
        first_token_only=False,
    ):
        """Encodes a batch; lists, arrays and tensors of other integers do as well.

        Args:
            input_ids: int32[B, S].
            input_mask: int32[B, S], 1 for a token and 0 for padding; None means all ones.
            segment_ids: int32[B, S], 0 for the first segment and 1 for the second; None means all zeros.
            training: whether dropout is applied.
            dropout_seed: int32[2], of which every mask is made; drawn when `training` without one.
            first_token_only: whether the last layer is computed for the first token only, which is all that the
                pooled output needs.

        Returns:
            BertOutput.

        Raises:
            InputError: shapes that do not fit, more positions than the model has, ids outside the vocabulary
                (the last in eager calls only).
        """
        inputs = checked_encoder_inputs(self.config, input_ids, input_mask, segment_ids)
        return super().__call__(
            *inputs, training=training, dropout_seed=dropout_seed, first_token_only=first_token_only
        )

    def call(
        self,
        input_ids,
        input_mask=None,
        segment_ids=None,
        training=False,
        dropout_seed=None,
        first_token_only=False,
    ):
        """The computation behind `__call__`."""
        if input_mask is None:
            input_mask = ops.ones_like(input_ids)
        if segment_ids is None:
            segment_ids = ops.zeros_like(input_ids)
        dropout_seed = self.dropout_seed(training, dropout_seed)

        embedded = self.embeddings(input_ids, segment_ids, dropout_seed)
        layers = self.encoder(embedded, input_mask, dropout_seed, first_token_only=first_token_only)
        return BertOutput(embedded, layers, layers[-1], self.pooler(layers[-1][:, 0]))

    def dropout_seed(self, training, given):
        """The seed that a call works with: None where there is no dropout.

        Returns:
            int32[2] or None.
        """
        rates = (self.config.hidden_dropout_prob, self.config.attention_probs_dropout_prob)
        if not training or not any(rates):
            return None
        return draw_seed() if given is None else ops.convert_to_tensor(given, "int32")
