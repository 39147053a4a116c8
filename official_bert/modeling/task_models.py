"""The encoder with a head for a task: classes or a score of a text, a choice, tags, the span of an answer.

Their dropout and initial weights are the original's constants, whatever the configuration says of the encoder's.

B batch   S length   K outputs   N choices
"""

import keras
from keras import ops

from official_bert.config import BertConfig
from official_bert.features import ENCODER_INPUTS
from official_bert.modeling.bert import BertModel
from official_bert.modeling.dropout import draw_seed, dropout
from official_bert.modeling.heads import LinearHead
from official_bert.modeling.layers import create_initializer

CLASSIFIER_DROPOUT = 0.1
HEAD_INITIALIZER_RANGE = 0.02
_HEAD_DROPOUT_INDEX = 1 << 20  # beyond every index in the encoder


class _LinearModel(keras.Model):
    """The encoder with a linear head whose weights have no scope, as in the original's classifier."""

    def __init__(self, config: BertConfig, num_outputs: int, use_one_hot_embeddings: bool, name: str):
        super().__init__(name=name)
        self.bert = BertModel(config, use_one_hot_embeddings)
        self.config, self.num_outputs = self.bert.config, num_outputs
        self.build()

    def build(self, input_shape=None):
        initializer = create_initializer(HEAD_INITIALIZER_RANGE)
        shape = (self.num_outputs, self.config.hidden_size)
        self.output_weights = self.add_weight(shape, initializer=initializer, name="output_weights")
        self.output_bias = self.add_weight((self.num_outputs,), initializer="zeros", name="output_bias")

    def _logits(self, features, training, dropout_seed, output: str):
        """Float[..., K] of one of the encoder's outputs, by its name."""
        seed = (draw_seed() if dropout_seed is None else dropout_seed) if training else None
        # Not in training, where it would draw other dropout masks: a seed gives the same weights as ever.
        first_token_only = output == "pooled_output" and not training
        vectors = getattr(_encoded(self.bert, features, training, seed, first_token_only), output)
        vectors = dropout(vectors, CLASSIFIER_DROPOUT, seed, _HEAD_DROPOUT_INDEX)
        return ops.matmul(vectors, ops.transpose(self.output_weights)) + self.output_bias


class BertClassifier(_LinearModel):
    """K numbers for a text or a pair, from the first token's vector: logits of classes, or one score.

    Devlin et al. (2019), section 4.1.
    """

    def __init__(
        self,
        config: BertConfig,
        num_outputs: int,
        use_one_hot_embeddings: bool = False,
        name: str = "classifier",
    ):
        """Builds the model and draws its weights.

        Args:
            config: of the encoder.
            num_outputs: K.
            use_one_hot_embeddings: as in BertModel.
            name: of the model.
        """
        super().__init__(config, num_outputs, use_one_hot_embeddings, name)

    def call(self, features, training=False, dropout_seed=None):
        """Logits of a batch.

        Args:
            features: a dict with `input_ids`, `input_mask`, `segment_ids`, int32[B, S].
            training: whether dropout is applied.
            dropout_seed: int32[2]; drawn when `training` without one.

        Returns:
            float[B, K].
        """
        return self._logits(features, training, dropout_seed, "pooled_output")


class BertChoice(BertClassifier):
    """A score for each of several texts or pairs, of which one is right. Devlin et al. (2019), section 4.4."""

    def __init__(self, config: BertConfig, use_one_hot_embeddings: bool = False, name: str = "choice"):
        """Builds the model and draws its weights; arguments as BertModel's."""
        super().__init__(config, 1, use_one_hot_embeddings, name)

    def call(self, features, training=False, dropout_seed=None):
        """Logits of a batch: arguments as BertClassifier's, but for features int32[B, N, S].

        Returns:
            float[B, N].
        """
        shape = ops.shape(features["input_ids"])
        flat = {name: ops.reshape(features[name], (-1, shape[2])) for name in ENCODER_INPUTS}
        return ops.reshape(super().call(flat, training, dropout_seed), shape[:2])


class BertTagger(_LinearModel):
    """K logits for every token. Devlin et al. (2019), section 5.3."""

    def __init__(
        self,
        config: BertConfig,
        num_outputs: int,
        use_one_hot_embeddings: bool = False,
        name: str = "tagger",
    ):
        """Builds the model and draws its weights; arguments as BertClassifier's."""
        super().__init__(config, num_outputs, use_one_hot_embeddings, name)

    def call(self, features, training=False, dropout_seed=None):
        """Logits of a batch: arguments as BertClassifier's.

        Returns:
            float[B, S, K].
        """
        return self._logits(features, training, dropout_seed, "sequence_output")


class _SpanScope(keras.layers.Layer):
    """The scope `cls` of a SQuAD checkpoint."""

    def __init__(self, config):
        super().__init__(name="cls")
        self.config = config

    def build(self, input_shape=None):
        self.squad = LinearHead(self.config, 2, name="squad")
        self.squad.build()

    def call(self, x):
        return self.squad(x)


class BertSpans(keras.Model):
    """Where an answer begins and ends: two logits for every token. Devlin et al. (2019), section 4.2."""

    def __init__(self, config: BertConfig, use_one_hot_embeddings: bool = False, name: str = "spans"):
        """Builds the model and draws its weights; arguments as BertModel's."""
        super().__init__(name=name)
        self.bert = BertModel(config, use_one_hot_embeddings)
        self.config = self.bert.config
        self.build()

    def build(self, input_shape=None):
        self.cls = _SpanScope(_with_head_range(self.config))
        self.cls.build()

    def call(self, features, training=False, dropout_seed=None):
        """Logits of a batch: arguments as BertClassifier's.

        Returns:
            start and end logits, float[B, S] each; padding is not masked out.
        """
        encoded = _encoded(self.bert, features, training, dropout_seed)
        logits = self.cls(encoded.sequence_output)  # [B, S, 2]
        return logits[..., 0], logits[..., 1]


def _encoded(bert, features, training, dropout_seed, first_token_only=False):
    inputs = (features[name] for name in ENCODER_INPUTS)
    return bert(*inputs, training=training, dropout_seed=dropout_seed, first_token_only=first_token_only)


def _with_head_range(config: BertConfig) -> BertConfig:
    """A copy of the configuration whose initial weights are those of the heads."""
    return BertConfig.from_dict(config.to_dict() | {"initializer_range": HEAD_INITIALIZER_RANGE})
