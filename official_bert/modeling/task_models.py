"""The fine-tuning models: the encoder with a head for classification or regression, choice, tagging or answer spans.

A model may name the weights that no output reads, `unused_weights`, and those that are never trained, `frozen_weights`,
by prefixes; its `frozen_features(features)` are then computed once for each example, and join the features of batches.

B batch   S length   K outputs   N choices
"""

import keras
from keras import ops

from official_bert.config import BertConfig
from official_bert.features import ENCODER_INPUTS
from official_bert.modeling.feature_based import encoder_of
from official_bert.modeling.heads import (
    HeadedModel,
    LinearHead,
    add_output_weights,
    checked_num_outputs,
    head_dropout,
    head_seed,
    linear_logits,
)
from official_bert.modeling.layers import Scope
from official_bert.modeling.pretrained import PACKAGE
from official_bert.options.serving import MODEL_CLASSES


def _logits(model: HeadedModel, features, training, dropout_seed, output: str):
    """Returns logits, float32[..., K], for the encoder's output of this name in BertOutput."""
    seed = head_seed(training, dropout_seed)
    # Training computes the last layer for all tokens, because a shorter layer would draw other dropout masks from
    # the same seed.
    first_token_only = output == "pooled_output" and not training
    encoded = model.bert(features, training=training, dropout_seed=seed, first_token_only=first_token_only)
    return linear_logits(model, head_dropout(getattr(encoded, output), seed))


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertClassifier(HeadedModel):
    """A classifier or, with K = 1, a regression model of a text or a pair. Devlin et al. (2019), section 4.1.

    It computes K outputs from the pooled output: the logits of K classes, or one score. As in the original, the
    variables of the head have no scope.
    """

    has_open_outputs = True
    huggingface_class = MODEL_CLASSES["classification"]

    def __init__(
        self,
        config: BertConfig,
        num_outputs: int,
        use_one_hot_embeddings: bool = False,
        name: str = "classifier",
        recompute_layers: bool = False,
    ):
        """Builds the model and draws its weights.

        Args:
            config: the configuration of the encoder.
            num_outputs: K, the number of outputs.
            use_one_hot_embeddings, name, recompute_layers: as in BertModel.

        Raises:
            InputError: K is no whole number from 1, or no model can be built from the configuration.
        """
        num_outputs = checked_num_outputs(num_outputs)
        super().__init__(encoder_of(config, use_one_hot_embeddings, recompute_layers), name)
        self.num_outputs = num_outputs
        self.build()

    def build(self, input_shape=None):
        add_output_weights(self, self.num_outputs, self.config.hidden_size)

    def get_config(self):
        return super().get_config() | {"num_outputs": self.num_outputs}

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
        return _logits(self, features, training, dropout_seed, "pooled_output")


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertChoice(HeadedModel):
    """A multiple-choice model: one score for each of N texts or pairs. Devlin et al. (2019), section 4.4."""

    num_outputs = 1
    huggingface_class = MODEL_CLASSES["choice"]

    def __init__(
        self,
        config: BertConfig,
        use_one_hot_embeddings: bool = False,
        name: str = "choice",
        recompute_layers: bool = False,
    ):
        """Builds the model and draws its weights; the arguments are those of BertModel."""
        super().__init__(encoder_of(config, use_one_hot_embeddings, recompute_layers), name)
        self.build()

    def build(self, input_shape=None):
        add_output_weights(self, self.num_outputs, self.config.hidden_size)

    def call(self, features, training=None, dropout_seed=None):
        """Computes the logits of a batch; the arguments are BertClassifier's, with features int32[B, N, S].

        Returns:
            float32[B, N].
        """
        shape = ops.shape(features["input_ids"])
        given = [name for name in ENCODER_INPUTS if name in features]
        flat = {name: ops.reshape(features[name], (-1, shape[2])) for name in given}
        return ops.reshape(_logits(self, flat, training, dropout_seed, "pooled_output"), shape[:2])


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertTagger(HeadedModel):
    """A tagger: K logits for every token. Devlin et al. (2019), section 5.3."""

    has_open_outputs = True
    huggingface_class = MODEL_CLASSES["tagging"]
    unused_weights = ("bert/pooler",)

    def __init__(
        self,
        config: BertConfig,
        num_outputs: int,
        use_one_hot_embeddings: bool = False,
        name: str = "tagger",
        recompute_layers: bool = False,
    ):
        """Builds the model and draws its weights; the arguments are those of BertClassifier."""
        num_outputs = checked_num_outputs(num_outputs)
        super().__init__(encoder_of(config, use_one_hot_embeddings, recompute_layers), name)
        self.num_outputs = num_outputs
        self.build()

    def build(self, input_shape=None):
        add_output_weights(self, self.num_outputs, self.config.hidden_size)

    def get_config(self):
        return super().get_config() | {"num_outputs": self.num_outputs}

    def call(self, features, training=None, dropout_seed=None):
        """Computes the logits of a batch; the arguments are those of BertClassifier.

        Returns:
            float32[B, S, K].
        """
        return _logits(self, features, training, dropout_seed, "sequence_output")


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertSpans(HeadedModel):
    """A model of answer spans: a start and an end logit for every token. Devlin et al. (2019), section 4.2."""

    unused_weights = ("bert/pooler",)

    def __init__(
        self,
        config: BertConfig,
        use_one_hot_embeddings: bool = False,
        name: str = "spans",
        recompute_layers: bool = False,
    ):
        """Builds the model and draws its weights; the arguments are those of BertModel."""
        super().__init__(encoder_of(config, use_one_hot_embeddings, recompute_layers), name)
        self.build()

    def build(self, input_shape=None):
        self.cls = Scope("cls", squad=LinearHead(2, name="squad"))
        self.cls.build((None, self.config.hidden_size))

    def call(self, features, training=None, dropout_seed=None):
        """Computes the logits of a batch; the arguments are those of BertClassifier.

        Returns:
            The start logits and the end logits, float32[B, S] each; padding is not masked out.
        """
        encoded = self.bert(features, training=training, dropout_seed=dropout_seed)
        logits = self.cls.squad(encoded.sequence_output)  # [B, S, 2]
        return logits[..., 0], logits[..., 1]
