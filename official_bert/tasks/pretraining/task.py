"""A pre-trained model as it is: vectors, and words for masked tokens. It is exported, not trained: see pretraining.py.

In: the vocabulary, and which heads a checkpoint has. Out: what tasks/base.py asks for of exports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

TOP_K = 10
MASK = "[MASK]"


class PretrainingTask:
    """The outputs of a checkpoint's encoder and of those heads that it has."""

    labels = num_choices = None
    text_inputs: ClassVar = {"text_a": [None], "text_b": [None]}

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

    def serving_text(self, model, texts: dict, reader) -> dict:
        """`serving_outputs` for a text, or a pair where `text_b` has a piece, and its `tokens`, string[B, S].

        [MASK] in a text is the token.
        """
        features = self._text_features(texts, reader)
        return self.serving_outputs(model, features) | {"tokens": self._tokens_of(features)}

    def fill_masks(self, model, texts: dict, reader) -> dict:
        """`masked_words` for every [MASK] in a text or a pair, [B, masks], in order.

        And `num_masks`, int32[B], and `positions`, int32[B, masks], among the tokens. Behind the last mask of a text
        positions and ids are -1, probabilities 0 and tokens "".
        """
        import tensorflow as tf

        features = self._text_features(texts, reader)
        is_mask = features["input_ids"] == reader.vocab[MASK]
        places = tf.broadcast_to(tf.range(tf.shape(is_mask)[1]), tf.shape(is_mask))
        positions = tf.ragged.boolean_mask(places, is_mask)
        found = self.masked_words(model, features | {"masked_lm_positions": positions.to_tensor()})
        is_there = tf.sequence_mask(positions.row_lengths())[..., None]
        nothing = {"top_k_probabilities": 0.0, "top_k_ids": -1, "top_k_tokens": ""}
        return {name: tf.where(is_there, values, nothing[name]) for name, values in found.items()} | {
            "num_masks": tf.cast(positions.row_lengths(), tf.int32),
            "positions": positions.to_tensor(-1),
        }

    def _text_features(self, texts: dict, reader) -> dict:
        """Encoder features of `text_inputs`, in which [MASK] is the token where the vocabulary has it."""
        from official_bert.data.text.graph_inputs import model_inputs

        tokenizer = reader.tokenizer
        encode = tokenizer.encode_with_masks if MASK in reader.vocab else tokenizer.encode
        pair = encode(texts["text_a"]), encode(texts["text_b"])
        return model_inputs(*pair, reader.max_seq_length, reader.vocab)

    def _tokens_of(self, features: dict):
        import tensorflow as tf

        numbers = tf.where(features["input_mask"] > 0, features["input_ids"] + 1, 0)
        return tf.gather(tf.constant(["", *self.tokens]), numbers)

    def _encoded(self, model, features: dict):
        return model.bert(features["input_ids"], features["input_mask"], features["segment_ids"])
