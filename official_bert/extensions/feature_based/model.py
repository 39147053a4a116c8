"""The feature-based tagger of Devlin et al. (2019), section 5.3 and table 7.

A BiLSTM and a linear layer read some layers of an encoder that is not trained. The outputs of these
layers may be computed before, because they never change.

B batch   S length   L chosen layers   K outputs
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from official_bert.config import BertConfig
from official_bert.extensions.feature_based.options import (
    CONCAT_LAST_FOUR,
    EMBEDDINGS,
    FEATURE_LAYERS,
    LAST,
    SECOND_TO_LAST,
    SUM_ALL,
    SUM_LAST_FOUR,
    WIDTH_RULE,
    is_width,
)
from official_bert.features import ENCODER_INPUTS
from official_bert.io.errors import InputError
from official_bert.modeling.bert import BertModel
from official_bert.modeling.configured_model import PACKAGE
from official_bert.modeling.heads import (
    BiLstm,
    HeadedModel,
    add_output_weights,
    head_dropout,
    head_seed,
    linear_logits,
)
from official_bert.modeling.layers import Scope, Tensor, float32_weight

LAYER_VECTORS = "layer_vectors"  # the feature of a batch that replaces a run of the encoder
_NUM_BILSTM_LAYERS = 2  # of the paper
_SUMS = (SUM_LAST_FOUR, SUM_ALL)


def choose_layers(feature_layers: str, num_layers: int) -> list[int]:
    """Returns the numbers of the layers that a tagger reads; 0 is that of the embeddings.

    In an encoder of fewer than four layers, the last four are all layers.

    Args:
        feature_layers: a value of --feature_layers.
        num_layers: the number of layers of the encoder.

    Raises:
        InputError: there is no such value, or the encoder has too few layers.
    """
    if feature_layers not in FEATURE_LAYERS:
        raise InputError(
            f"feature_layers: must be one of {', '.join(FEATURE_LAYERS)}, got {feature_layers!r}"
        )
    if feature_layers == SECOND_TO_LAST and num_layers < 2:
        raise InputError(
            f"feature_layers: an encoder of one layer has no {SECOND_TO_LAST}; choose {LAST}"
        )
    fourth_to_last = max(1, num_layers - 3)
    ranges = {
        EMBEDDINGS: range(1),
        SECOND_TO_LAST: range(num_layers - 1, num_layers),
        LAST: range(num_layers, num_layers + 1),
        SUM_LAST_FOUR: range(fourth_to_last, num_layers + 1),
        CONCAT_LAST_FOUR: range(fourth_to_last, num_layers + 1),
        SUM_ALL: range(1, num_layers + 1),
    }
    return list(ranges[feature_layers])


class FeatureHead(keras.layers.Layer):
    """All that is trained: the weights of a sum, the BiLSTM and the linear layer."""

    def __init__(self, config: BertConfig, num_outputs: int, feature_layers: str, size: int):
        """Makes a layer without weights, whose name is that of the layers.

        Args:
            config: the configuration of the model.
            num_outputs: K.
            feature_layers: the choice of layers.
            size: the number of outputs of the BiLSTM.
        """
        super().__init__(name=feature_layers, dtype="float32")
        self.config = config
        self.num_outputs = num_outputs
        self.num_layers_read = len(choose_layers(feature_layers, config.num_hidden_layers))
        self.is_sum = feature_layers in _SUMS
        self.size = size

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights.

        Args:
            input_shape: not read, because the configuration has the sizes; Keras may pass it.
        """
        num_concatenated = self.num_layers_read
        if self.is_sum:
            num_concatenated = 1
            # With zeros, all layers have the same weight.
            self.sum_weights = float32_weight(self, "sum_weights", (self.num_layers_read,))
        self.input_width = num_concatenated * self.config.hidden_size
        self.bilstm = BiLstm(self.config.num_layers_on_top or _NUM_BILSTM_LAYERS, self.size)
        self.bilstm.build((None, None, self.input_width))
        add_output_weights(self, self.num_outputs, self.size)

    def call(self, vectors: Tensor, input_mask: Tensor, dropout_seed: Tensor | None) -> Tensor:
        """Returns logits, float32[B, S, K].

        Args:
            vectors: the outputs of the chosen layers, float32[B, S, L, hidden].
            input_mask: int32[B, S], 1 for a token and 0 for padding.
            dropout_seed: int32[2]; None for no dropout.
        """
        if self.is_sum:
            shares = ops.exp(self.sum_weights - ops.logsumexp(self.sum_weights))  # a softmax
            vectors = ops.sum(vectors * ops.reshape(shares, (-1, 1)), axis=2)
        shape = ops.shape(vectors)
        inputs = ops.reshape(vectors, (shape[0], shape[1], self.input_width))
        outputs = self.bilstm(inputs, input_mask)
        return linear_logits(self, head_dropout(self.config, outputs, dropout_seed))


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertFeatureTagger(HeadedModel):
    """A tagger that trains a BiLSTM on the layers of an encoder, and not the encoder.

        tagger = BertFeatureTagger.from_pretrained("bert", num_outputs=5, feature_layers="last")
        logits = tagger({"input_ids": ids, "input_mask": mask})

    The weights of a sum are a softmax, so they add up to 1.
    """

    default_name = "feature_tagger"
    needs_num_outputs = True
    feature_names = (*ENCODER_INPUTS, LAYER_VECTORS)
    bilstm_class = BertModel  # The BiLSTM belongs to the head.
    unused_weights = ("bert/pooler",)

    def __init__(  # noqa: PLR0913 - each is named in a call
        self,
        config: BertConfig,
        num_outputs: int,
        feature_layers: str = CONCAT_LAST_FOUR,
        bilstm_size: int = 768,
        use_one_hot_embeddings: bool = False,
        name: str | None = None,
        recompute_layers: bool = False,
    ):
        """Builds the model and draws its weights; other arguments are those of BertModel.

        Args:
            config: the configuration of the model. Its `num_bilstm_layers` is the number of layers
                of the BiLSTM; without it there are 2.
            num_outputs: K.
            feature_layers: the layers that the BiLSTM reads, a value of --feature_layers.
            bilstm_size: the number of outputs of the BiLSTM, an even number.
            use_one_hot_embeddings: whether word embeddings are looked up by a matrix product.
            name: the name of the model; None for `default_name`.
            recompute_layers: not read, because the backward pass does not reach the encoder.

        Raises:
            InputError: the encoder has no such layers, or the BiLSTM cannot have this size.
        """
        if not is_width(bilstm_size):
            raise InputError(f"bilstm_size: {WIDTH_RULE}, got {bilstm_size}")
        self.num_outputs = num_outputs
        self.feature_layers = feature_layers
        self.bilstm_size = bilstm_size
        self.layer_numbers = choose_layers(feature_layers, config.num_hidden_layers)
        super().__init__(config, use_one_hot_embeddings, name, recompute_layers)
        self.bert.trainable = False
        self.autocast = False  # Keras would round the vectors of a batch to 16 bits.

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights of the head.

        Args:
            input_shape: not read, because the configuration has the sizes; Keras may pass it.
        """
        head = FeatureHead(self.config, self.num_outputs, self.feature_layers, self.bilstm_size)
        self.features = Scope("features", head=head)
        self.features.build()

    def get_config(self) -> dict:
        return super().get_config() | {
            "num_outputs": self.num_outputs,
            "feature_layers": self.feature_layers,
            "bilstm_size": self.bilstm_size,
        }

    def compute_layers(self, features: dict, layer_numbers: Sequence[int]) -> list[Tensor]:
        """Computes the outputs of some layers of the encoder, without dropout and gradient.

        Args:
            features: the features of the encoder.
            layer_numbers: the numbers of the layers; 0 is that of the embeddings.

        Returns:
            float32[B, S, hidden] for each number.
        """
        inputs = {name: features[name] for name in ENCODER_INPUTS if name in features}
        encoded = self.bert(inputs, training=False)
        outputs = [encoded.embedding_output, *encoded.all_encoder_layers]
        return [ops.stop_gradient(ops.cast(outputs[number], "float32")) for number in layer_numbers]

    def call(
        self, features: dict, training: bool | None = None, dropout_seed: Tensor | None = None
    ) -> Tensor:
        """Computes the logits of a batch.

        Args:
            features: the features of the encoder. With `layer_vectors`, float32[B, S, L, hidden],
                the outputs of the layers `layer_numbers`, the encoder does not run.
            training: whether dropout is applied; None follows the calling context.
            dropout_seed: int32[2], the seed of all dropout masks; None draws one if `training`.

        Returns:
            float32[B, S, K].
        """
        vectors = features.get(LAYER_VECTORS)
        if vectors is None:
            vectors = ops.stack(self.compute_layers(features, self.layer_numbers), axis=2)
        input_mask = features.get("input_mask")
        if input_mask is None:
            input_mask = ops.ones_like(features["input_ids"])
        return self.features.head(vectors, input_mask, head_seed(training, dropout_seed))
