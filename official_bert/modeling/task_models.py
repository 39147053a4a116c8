"""The fine-tuning models: the encoder with a head for classification or regression, choice, tagging or answer spans.

The heads have the original's constants for dropout and initial weights; the configuration applies to the encoder only.
A model may name the weights that no output reads, `unused_weights`, and those that are never trained, `frozen_weights`,
by prefixes; its `frozen_features(features)` are then computed once for each example, and join the features of batches.

B batch   S length   K outputs   N choices
"""

import keras
import numpy as np
from keras import ops

from official_bert.config import BertConfig
from official_bert.features import ENCODER_INPUTS
from official_bert.io.errors import InputError
from official_bert.modeling.dropout import draw_seed, dropout
from official_bert.modeling.heads import HeadedModel, LinearHead
from official_bert.modeling.layers import create_initializer, float32_weight
from official_bert.modeling.pretrained import PACKAGE
from official_bert.options.serving import MODEL_CLASSES

CLASSIFIER_DROPOUT = 0.1
HEAD_INITIALIZER_RANGE = 0.02
_HEAD_DROPOUT_INDEX = 1 << 20  # larger than every index in the encoder


def checked_num_outputs(num_outputs) -> int:
    """Returns the number of outputs of a head.

    Raises:
        InputError: it is no whole number from 1.
    """
    is_whole = isinstance(num_outputs, int | np.integer) and not isinstance(num_outputs, bool)
    if not is_whole or num_outputs < 1:
        raise InputError(f"num_outputs: must be a whole number from 1, got {num_outputs!r}")
    return int(num_outputs)


class _LinearModel(HeadedModel):
    """The encoder with a linear head whose variables have no scope, as in the original's classifier."""

    has_open_outputs = True

    def __init__(self, config: BertConfig, num_outputs: int, use_one_hot_embeddings: bool, name: str):
        num_outputs = checked_num_outputs(num_outputs)
        super().__init__(config, use_one_hot_embeddings, name)
        self.num_outputs = num_outputs
        self.build()

    def build(self, input_shape=None):
        initializer = create_initializer(HEAD_INITIALIZER_RANGE)
        shape = (self.num_outputs, self.config.hidden_size)
        self.output_weights = float32_weight(self, "output_weights", shape, initializer)
        self.output_bias = float32_weight(self, "output_bias", (self.num_outputs,))

    def get_config(self):
        return super().get_config() | {"num_outputs": self.num_outputs}

    def _logits(self, features, training, dropout_seed, output: str):
        """Returns logits, float32[..., K], for the encoder's output of this name in BertOutput."""
        seed = (draw_seed() if dropout_seed is None else dropout_seed) if training else None
        # Training computes the last layer for all tokens, because a shorter layer would draw other dropout masks from
        # the same seed.
        first_token_only = output == "pooled_output" and not training
        vectors = getattr(self.encoded(features, training, seed, first_token_only), output)
        vectors = dropout(ops.cast(vectors, "float32"), CLASSIFIER_DROPOUT, seed, _HEAD_DROPOUT_INDEX)
        return ops.matmul(vectors, ops.transpose(self.output_weights)) + self.output_bias


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertClassifier(_LinearModel):
    """A classifier or, with K = 1, a regression model of a text or a pair. Devlin et al. (2019), section 4.1.

    It computes K outputs from the pooled output: the logits of K classes, or one score.
    """

    huggingface_class = MODEL_CLASSES["classification"]

    def __init__(
        self,
        config: BertConfig,
        num_outputs: int,
        use_one_hot_embeddings: bool = False,
        name: str = "classifier",
    ):
        """Builds the model and draws its weights.

        Args:
            config: the configuration of the encoder.
            num_outputs: K, the number of outputs.
            use_one_hot_embeddings: as in BertModel.
            name: the name of the model.

        Raises:
            InputError: K is no whole number from 1, or no model can be built from the configuration.
        """
        super().__init__(config, num_outputs, use_one_hot_embeddings, name)

    def call(self, features, training=None, dropout_seed=None):
        """Computes the logits of a batch.

        Args:
            features: a dict with `input_ids`, `input_mask` and `segment_ids`, each int32[B, S]; the last two may be
                absent, as in BertModel, and others are not read.
            training: whether dropout is applied; None follows the calling context.
            dropout_seed: int32[2], the seed of all dropout masks; None draws one if `training`.

        Returns:
            float32[B, K].
        """
        return self._logits(features, training, dropout_seed, "pooled_output")


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertChoice(BertClassifier):
    """A multiple-choice model: one score for each of N texts or pairs. Devlin et al. (2019), section 4.4."""

    has_open_outputs = False
    huggingface_class = MODEL_CLASSES["choice"]

    def __init__(self, config: BertConfig, use_one_hot_embeddings: bool = False, name: str = "choice"):
        """Builds the model and draws its weights; the arguments are those of BertModel."""
        super().__init__(config, 1, use_one_hot_embeddings, name)

    def get_config(self):
        arguments = super().get_config()
        del arguments["num_outputs"]  # always 1
        return arguments

    def call(self, features, training=None, dropout_seed=None):
        """Computes the logits of a batch; the arguments are BertClassifier's, with features int32[B, N, S].

        Returns:
            float32[B, N].
        """
        shape = ops.shape(features["input_ids"])
        given = [name for name in ENCODER_INPUTS if name in features]
        flat = {name: ops.reshape(features[name], (-1, shape[2])) for name in given}
        return ops.reshape(super().call(flat, training, dropout_seed), shape[:2])


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertTagger(_LinearModel):
    """A tagger: K logits for every token. Devlin et al. (2019), section 5.3."""

    huggingface_class = MODEL_CLASSES["tagging"]
    unused_weights = ("bert/pooler",)

    def __init__(
        self,
        config: BertConfig,
        num_outputs: int,
        use_one_hot_embeddings: bool = False,
        name: str = "tagger",
    ):
        """Builds the model and draws its weights; the arguments are those of BertClassifier."""
        super().__init__(config, num_outputs, use_one_hot_embeddings, name)

    def call(self, features, training=None, dropout_seed=None):
        """Computes the logits of a batch; the arguments are those of BertClassifier.

        Returns:
            float32[B, S, K].
        """
        return self._logits(features, training, dropout_seed, "sequence_output")


class _SpanScope(keras.layers.Layer):
    """The head of a SQuAD model, whose variables are in the scope `cls` of a checkpoint."""

    def __init__(self, config):
        super().__init__(name="cls", dtype="float32")  # that of the head inside
        self.config = config

    def build(self, input_shape=None):
        self.squad = LinearHead(self.config, 2, name="squad")
        self.squad.build()

    def call(self, x):
        return self.squad(x)


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertSpans(HeadedModel):
    """A model of answer spans: a start and an end logit for every token. Devlin et al. (2019), section 4.2."""

    unused_weights = ("bert/pooler",)

    def __init__(self, config: BertConfig, use_one_hot_embeddings: bool = False, name: str = "spans"):
        """Builds the model and draws its weights; the arguments are those of BertModel."""
        super().__init__(config, use_one_hot_embeddings, name)
        self.build()

    def build(self, input_shape=None):
        self.cls = _SpanScope(_with_head_range(self.config))
        self.cls.build()

    def call(self, features, training=None, dropout_seed=None):
        """Computes the logits of a batch; the arguments are those of BertClassifier.

        Returns:
            The start logits and the end logits, float32[B, S] each; padding is not masked out.
        """
        encoded = self.encoded(features, training, dropout_seed)
        logits = self.cls(encoded.sequence_output)  # [B, S, 2]
        return logits[..., 0], logits[..., 1]


def _with_head_range(config: BertConfig) -> BertConfig:
    """Returns a copy of the configuration with the heads' range of initial weights."""
    return BertConfig.from_dict(config.to_dict() | {"initializer_range": HEAD_INITIALIZER_RANGE})
