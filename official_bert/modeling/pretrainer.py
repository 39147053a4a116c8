"""The pre-training model: encoder, masked LM head and next-sentence head.

The losses are in tasks/pretraining/objective.py.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from official_bert.config import BertConfig
from official_bert.features import ENCODER_INPUTS, MASKED_LM_POSITIONS
from official_bert.modeling.bert import BertModel
from official_bert.modeling.heads import HeadedModel, LinearHead, MaskedLmHead
from official_bert.modeling.inputs import checked_ids
from official_bert.modeling.layers import Scope
from official_bert.modeling.pretrained import PACKAGE


class PretrainingOutput(NamedTuple):
    """The result of a call of BertPretrainer.

    Attributes:
        masked_lm_logits: float32[B*P, V], or float32[B, S, V] for a call without `masked_lm_positions`.
        next_sentence_logits: float32[B, 2], class 0 for a second segment that follows the first, 1 for a random one.
        encoded: BertOutput.
    """

    masked_lm_logits: Any
    next_sentence_logits: Any
    encoded: Any

    @property
    def masked_lm_log_probs(self):
        """float32 of the same shape as the logits."""
        return ops.log_softmax(ops.cast(self.masked_lm_logits, "float32"))

    @property
    def next_sentence_log_probs(self):
        """float32[B, 2]."""
        return ops.log_softmax(ops.cast(self.next_sentence_logits, "float32"))


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertPretrainer(HeadedModel):
    """BertModel with both pre-training heads.

    pretrainer = BertPretrainer(config)
    out = pretrainer({"input_ids": ids, "masked_lm_positions": positions})
    out.masked_lm_log_probs, out.next_sentence_log_probs
    """

    feature_names = (*ENCODER_INPUTS, MASKED_LM_POSITIONS)

    def __init__(
        self,
        config: BertConfig,
        use_one_hot_embeddings: bool = False,
        name: str = "pretrainer",
        recompute_layers: bool = False,
        packed_sequences: bool = False,
    ):
        """Builds the model and draws its weights; arguments and errors are those of BertModel."""
        encoder = BertModel(
            config, use_one_hot_embeddings, recompute_layers=recompute_layers, packed_sequences=packed_sequences
        )
        super().__init__(encoder, name)
        self.build()

    def build(self, input_shape=None):
        # Of the two classes of next sentences, 0 follows the first segment and 1 is random.
        self.cls = Scope(
            "cls",
            predictions=MaskedLmHead(self.config),
            seq_relationship=LinearHead(2, "seq_relationship", self.config.initializer_range),
        )
        self.cls.build((None, self.config.hidden_size))

    def checked(self, given: dict) -> dict:
        """Returns the features that the model reads; in eager calls positions outside the sequence are refused."""
        given = super().checked(given)
        checked = {name: given[name] for name in ENCODER_INPUTS if name in given}
        if MASKED_LM_POSITIONS in given:
            length = checked["input_ids"].shape[-1]
            checked[MASKED_LM_POSITIONS] = checked_ids(
                MASKED_LM_POSITIONS, given[MASKED_LM_POSITIONS], length, "sequence length"
            )
        return checked

    def call(self, features, training=None, dropout_seed=None):
        """Encodes a batch and scores words and next sentences.

        Args:
            features: a dict with `input_ids` and possibly `input_mask` and `segment_ids`, int32[B, S], as in BertModel,
                and `masked_lm_positions`, int32[B, P], without which every position is scored; labels are not read.
            training: whether dropout is applied; None follows the calling context.
            dropout_seed: int32[2], of which every mask is made; drawn when `training` without one.

        Returns:
            PretrainingOutput.
        """
        encoded = self.bert(features, training=training, dropout_seed=dropout_seed)
        words = self.cls.predictions(
            encoded.sequence_output, features.get(MASKED_LM_POSITIONS), self.bert.embedding_table
        )
        return PretrainingOutput(words, self.cls.seq_relationship(encoded.pooled_output), encoded)
