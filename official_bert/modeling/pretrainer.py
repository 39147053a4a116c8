"""The pre-training model: encoder, masked LM head, next-sentence head, and their losses."""

from typing import Any, NamedTuple

import keras
from keras import ops

from official_bert.config import BertConfig
from official_bert.modeling.bert import BertModel
from official_bert.modeling.heads import PretrainingHeads
from official_bert.modeling.inputs import checked_encoder_inputs, checked_ids
from official_bert.modeling.losses import cross_entropy, masked_lm_loss, next_sentence_loss


class PretrainingOutput(NamedTuple):
    """What a call of BertPretrainer gives.

    Attributes:
        loss: float32[], the sum of the two losses.
        masked_lm_loss: float32[], weighted mean over the predictions of the batch.
        next_sentence_loss: float32[], mean over the batch.
        masked_lm_example_loss: float32[B*P], of each prediction, padding included.
        next_sentence_example_loss: float32[B].
        masked_lm_logits: float[B*P, V].
        next_sentence_logits: float[B, 2].
        masked_lm_log_probs: float32[B*P, V].
        next_sentence_log_probs: float32[B, 2], class 0 real and 1 random.
        encoded: BertOutput.
    """

    loss: Any
    masked_lm_loss: Any
    next_sentence_loss: Any
    masked_lm_example_loss: Any
    next_sentence_example_loss: Any
    masked_lm_logits: Any
    next_sentence_logits: Any
    masked_lm_log_probs: Any
    next_sentence_log_probs: Any
    encoded: Any


class BertPretrainer(keras.Model):
    """BertModel with both pre-training heads.

    pretrainer = BertPretrainer(config)
    out = pretrainer(features)
    out.loss, out.masked_lm_log_probs
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
        """Encodes a batch and computes both losses; lists, arrays and tensors of other integers do as well.

        Args:
            features: a dict of the seven record features: `input_ids`, `input_mask`, `segment_ids` int32[B, S];
                `masked_lm_positions`, `masked_lm_ids` int32[B, P]; `masked_lm_weights` float32[B, P];
                `next_sentence_labels` int32[B, 1].
            training: whether dropout is applied.
            dropout_seed: int32[2], of which every mask is made; drawn when `training` without one.

        Returns:
            PretrainingOutput.

        Raises:
            InputError: as BertModel; in eager calls also for positions outside the sequence and labels outside
                the vocabulary.
        """
        inputs = ("input_ids", "input_mask", "segment_ids")
        checked = dict(
            zip(
                inputs, checked_encoder_inputs(self.config, *(features[name] for name in inputs)), strict=True
            )
        )
        for name, size, table in (
            ("masked_lm_positions", checked["input_ids"].shape[-1], "sequence length"),
            ("masked_lm_ids", self.config.vocab_size, "vocab_size"),
            ("next_sentence_labels", 2, "classes"),
        ):
            checked[name] = checked_ids(name, features[name], size, table)
        checked["masked_lm_weights"] = ops.convert_to_tensor(features["masked_lm_weights"], "float32")
        return super().__call__(checked, training=training, dropout_seed=dropout_seed)

    def call(self, features, training=False, dropout_seed=None):
        """The computation behind `__call__`."""
        encoded = self.bert(
            features["input_ids"],
            features["input_mask"],
            features["segment_ids"],
            training=training,
            dropout_seed=dropout_seed,
        )
        positions = features["masked_lm_positions"]
        word_logits, next_logits = self.cls(encoded, positions, self.bert.embedding_table)
        word_losses = cross_entropy(word_logits, ops.reshape(features["masked_lm_ids"], (-1,)))
        next_losses = cross_entropy(next_logits, ops.reshape(features["next_sentence_labels"], (-1,)))

        weights = ops.reshape(features["masked_lm_weights"], (-1,))
        word_loss = masked_lm_loss(word_losses, weights, ops.sum(weights))
        next_loss = next_sentence_loss(next_losses, ops.shape(next_losses)[0])
        return PretrainingOutput(
            loss=word_loss + next_loss,
            masked_lm_loss=word_loss,
            next_sentence_loss=next_loss,
            masked_lm_example_loss=word_losses,
            next_sentence_example_loss=next_losses,
            masked_lm_logits=word_logits,
            next_sentence_logits=next_logits,
            masked_lm_log_probs=ops.log_softmax(ops.cast(word_logits, "float32")),
            next_sentence_log_probs=ops.log_softmax(ops.cast(next_logits, "float32")),
            encoded=encoded,
        )
