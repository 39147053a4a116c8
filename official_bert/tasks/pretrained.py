"""A pre-trained model as it is: vectors, and words for masked tokens. It is exported, not trained: see pretraining.py.

In: the vocabulary, and which heads a checkpoint has. Out: what tasks/base.py asks for of exports.
"""

from __future__ import annotations

from collections.abc import Sequence

TOP_K = 10


class PretrainedTask:
    """The outputs of a checkpoint's encoder and of those heads that it has."""

    labels = num_choices = None

    def __init__(self, tokens: Sequence[str], has_pooler: bool = True, has_masked_lm: bool = True):
        """Args:
        tokens: of the vocabulary, by id.
        has_pooler, has_masked_lm: whether the checkpoint has their weights.
        """
        self.tokens, self.has_pooler, self.has_masked_lm = tokens, has_pooler, has_masked_lm

    @property
    def untrained(self) -> tuple[str, ...]:
        """What names of weights that no output reads begin with."""
        absent = {"bert/pooler": not self.has_pooler, "cls/predictions": not self.has_masked_lm}
        return ("cls/seq_relationship", *(name for name, is_absent in absent.items() if is_absent))

    def build_model(self, config, use_one_hot_embeddings: bool):
        """A BertPretrainer."""
        from official_bert.modeling import BertPretrainer

        return BertPretrainer(config, use_one_hot_embeddings)

    def serving_outputs(self, model, features: dict) -> dict:
        """`sequence_output`, float32[B, S, hidden], and `pooled_output`, float32[B, hidden]."""
        import tensorflow as tf

        encoded = self._encoded(model, features)
        outputs = {"sequence_output": tf.cast(encoded.sequence_output, tf.float32)}
        if self.has_pooler:
            outputs["pooled_output"] = tf.cast(encoded.pooled_output, tf.float32)
        return outputs

    def masked_words(self, model, features: dict) -> dict:
        """The most probable words at `masked_lm_positions`, int32[B, P], the best first.

        Returns:
            `top_k_probabilities`, float32[B, P, k], `top_k_ids`, int32[B, P, k], `top_k_tokens`, string[B, P, k].
        """
        import tensorflow as tf

        positions = features["masked_lm_positions"]
        encoded = self._encoded(model, features)
        logits = model.cls.predictions(encoded.sequence_output, positions, model.bert.embedding_table)
        chances = tf.nn.softmax(tf.cast(logits, tf.float32))  # [B*P, V]
        best, ids = tf.math.top_k(chances, k=min(TOP_K, len(self.tokens)))
        shape = tf.concat([tf.shape(positions), [-1]], axis=0)
        return {
            "top_k_probabilities": tf.reshape(best, shape),
            "top_k_ids": tf.reshape(ids, shape),
            "top_k_tokens": tf.reshape(tf.gather(tf.constant(self.tokens), ids), shape),
        }

    def _encoded(self, model, features: dict):
        return model.bert(features["input_ids"], features["input_mask"], features["segment_ids"])
