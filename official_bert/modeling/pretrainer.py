"""The pre-training model: encoder, masked LM head and next-sentence head.

The losses are in tasks/pretraining/objective.py.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from official_bert.config import BertConfig
from official_bert.features import ENCODER_INPUTS, MASKED_LM_POSITIONS
from official_bert.modeling.bert import BertModel
from official_bert.modeling.heads import PretrainingHeads
from official_bert.modeling.inputs import checked_encoder_inputs, checked_ids


class PretrainingOutput(NamedTuple):
    """The result of a call of BertPretrainer.

    Attributes:
        masked_lm_logits: float[B*P, V].
        next_sentence_logits: float[B, 2], class 0 for a second segment that follows the first, 1 for a random one.
        encoded: BertOutput.
    """

    masked_lm_logits: Any
    next_sentence_logits: Any
    encoded: Any

    @property
    def masked_lm_log_probs(self):
        """float32[B*P, V]."""
        return ops.log_softmax(ops.cast(self.masked_lm_logits, "float32"))

    @property
    def next_sentence_log_probs(self):
        """float32[B, 2]."""
        return ops.log_softmax(ops.cast(self.next_sentence_logits, "float32"))


class BertPretrainer(keras.Model):
    """BertModel with both pre-training heads.

    pretrainer = BertPretrainer(config)
    out = pretrainer({"input_ids": ids, "input_mask": None, "segment_ids": None, "masked_lm_positions": positions})
    out.masked_lm_log_probs, out.next_sentence_log_probs
    """

    def __init__(self, config: BertConfig, use_one_hot_embeddings: bool = False, name: str = "pretrainer"):
        """Builds the model and draws its weights; arguments and errors are those of BertModel."""
        super().__init__(name=name)
        self.bert = BertModel(config, use_one_hot_embeddings)
        self.config = self.bert.config
        self.build()

    def build(self, input_shape=None):
        self.cls = PretrainingHeads(self.config)
        self.cls.build()

    def __call__(self, features, training=False, dropout_seed=None):
        """Encodes a batch and scores words and next sentences.

        Lists, arrays and tensors of other integers do as well.

        Args:
            features: a dict with `input_ids`, `input_mask`, `segment_ids`, int32[B, S], and `masked_lm_positions`,
                int32[B, P]; labels among them are not read.
            training: whether dropout is applied.
            dropout_seed: int32[2], of which every mask is made; drawn when `training` without one.

        Returns:
            PretrainingOutput.

        Raises:
            InputError: as BertModel; in eager calls also for positions outside the sequence.
        """
        inputs = checked_encoder_inputs(self.config, *(features[name] for name in ENCODER_INPUTS))
        checked = dict(zip(ENCODER_INPUTS, inputs, strict=True))
        checked[MASKED_LM_POSITIONS] = checked_ids(
            MASKED_LM_POSITIONS, features[MASKED_LM_POSITIONS], inputs[0].shape[-1], "sequence length"
        )
        return super().__call__(checked, training=training, dropout_seed=dropout_seed)

    def call(self, features, training=False, dropout_seed=None):
        """The computation behind `__call__`."""
        encoded = self.bert(
            *(features[name] for name in ENCODER_INPUTS), training=training, dropout_seed=dropout_seed
        )
        logits = self.cls(encoded, features[MASKED_LM_POSITIONS], self.bert.embedding_table)
        return PretrainingOutput(*logits, encoded)
