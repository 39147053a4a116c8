"""A pre-trained model as a task that is only exported: vectors, and words for masked tokens. objective.py trains it.

In: the vocabulary, and the names of a checkpoint's variables. Out: the methods of ServedTask in tasks/base.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import ClassVar

import tensorflow as tf
from absl import logging

from official_bert.config import LEFT_TO_RIGHT
from official_bert.features import ENCODER_INPUTS, MASKED_LM_POSITIONS
from official_bert.graph_text.inputs import model_inputs
from official_bert.modeling import BertPretrainer
from official_bert.tasks.base import ServedTask, Settings
from official_bert.tasks.clients import ServedModel
from official_bert.tasks.pretraining.client import (
    MASK,
    MASK_SIGNATURE,
    POOLED,
    SEQUENCE,
    TEXT_MASK_SIGNATURE,
    TOP_K,
    PretrainingClient,
)
from official_bert.tokenization import FullTokenizer

_POOLER, _MASKED_LM, _NEXT_SENTENCE = "bert/pooler", "cls/predictions", "cls/seq_relationship"


class PretrainingTask(ServedTask):
    """The outputs of a checkpoint's encoder and of the heads that the checkpoint has."""

    text_inputs: ClassVar = {"text_a": [None], "text_b": [None]}

    def __init__(self, tokens: Sequence[str] = (), has_pooler: bool = True, has_masked_lm: bool = True):
        """Sets the outputs of the model."""
        self.tokens, self.has_pooler, self.has_masked_lm = tokens, has_pooler, has_masked_lm

    def for_checkpoint(self, names: Collection[str], tokenizer: FullTokenizer, config) -> PretrainingTask:
        """Returns the task with the heads of the checkpoint; the log names the missing heads."""
        has = {head: any(name.startswith(head) for name in names) for head in (_POOLER, _MASKED_LM)}
        if config.direction == LEFT_TO_RIGHT:
            logging.warning(
                "The model predicts from left to right, not masked words: %s is left out", MASK_SIGNATURE
            )
            return PretrainingTask(_tokens(tokenizer, config), has[_POOLER], has_masked_lm=False)
        for head, output in ((_POOLER, POOLED), (_MASKED_LM, MASK_SIGNATURE)):
            if not has[head]:
                logging.warning("The checkpoint has no %s: %s is left out of the export", head, output)
        return PretrainingTask(_tokens(tokenizer, config), has[_POOLER], has[_MASKED_LM])

    def build_model(self, config, use_one_hot_embeddings: bool) -> BertPretrainer:
        """Returns a BertPretrainer."""
        model = BertPretrainer(config, use_one_hot_embeddings)
        absent = {_POOLER: not self.has_pooler, _MASKED_LM: not self.has_masked_lm}
        model.unused_weights = (_NEXT_SENTENCE, *(name for name, is_absent in absent.items() if is_absent))
        return model

    def serving_outputs(self, model, features: dict) -> dict:
        """Returns `sequence_output`, float32[B, S, hidden], and `pooled_output`, float32[B, hidden]."""
        encoded = _encoded(model, features)
        outputs = {SEQUENCE: tf.cast(encoded.sequence_output, tf.float32)}
        if self.has_pooler:
            outputs[POOLED] = tf.cast(encoded.pooled_output, tf.float32)
        return outputs

    def further_signatures(self, model, reader=None) -> dict[str, Callable[[dict], dict]]:
        """Returns `masked_words` or, of text, `fill_masks`, if the checkpoint has a masked LM head for [MASK]."""
        if not self.has_masked_lm or (reader and MASK not in reader.vocab):
            return {}
        if reader:
            return {TEXT_MASK_SIGNATURE: lambda texts: self.fill_masks(model, texts, reader)}
        return {MASK_SIGNATURE: lambda features: self.masked_words(model, features)}

    def masked_words(self, model, features: dict) -> dict:
        """Returns the most probable words at `masked_lm_positions`, int32[B, P], the most probable first.

        Returns:
            `top_k_probabilities`, float32[B, P, k], `top_k_ids`, int32[B, P, k], `top_k_tokens`, string[B, P, k].
        """
        positions = features[MASKED_LM_POSITIONS]
        encoded = _encoded(model, features)
        logits = model.cls.predictions(encoded.sequence_output, positions, model.bert.embedding_table)
        probabilities = tf.nn.softmax(tf.cast(logits, tf.float32))  # [B*P, V]
        best, ids = tf.math.top_k(probabilities, k=min(TOP_K, len(self.tokens)))
        shape = tf.concat([tf.shape(positions), [-1]], axis=0)
        return {
            "top_k_probabilities": tf.reshape(best, shape),
            "top_k_ids": tf.reshape(ids, shape),
            "top_k_tokens": tf.reshape(tf.gather(tf.constant(self.tokens), ids), shape),
        }

    def serving_text(self, model, texts: dict, reader) -> dict:
        """Returns `serving_outputs` for a text, or for a pair if `text_b` has a token, and its `tokens`, string[B, S].

        The tokenizer keeps [MASK] as one token.
        """
        features = _text_features(texts, reader)
        return self.serving_outputs(model, features) | {"tokens": self._tokens_of(features)}

    def fill_masks(self, model, texts: dict, reader) -> dict:
        """Returns `masked_words` for every [MASK] in a text or a pair, [B, masks], in order.

        Further outputs are `num_masks`, int32[B], and `positions`, int32[B, masks], the positions among the tokens.
        After the last mask of a text, positions and ids are -1, probabilities are 0 and tokens are "".
        """
        features = _text_features(texts, reader)
        is_mask = features["input_ids"] == reader.vocab[MASK]
        columns = tf.broadcast_to(tf.range(tf.shape(is_mask)[1]), tf.shape(is_mask))
        positions = tf.ragged.boolean_mask(columns, is_mask)
        found = self.masked_words(model, features | {MASKED_LM_POSITIONS: positions.to_tensor()})
        is_there = tf.sequence_mask(positions.row_lengths())[..., None]
        nothing = {"top_k_probabilities": 0.0, "top_k_ids": -1, "top_k_tokens": ""}
        return {name: tf.where(is_there, values, nothing[name]) for name, values in found.items()} | {
            "num_masks": tf.cast(positions.row_lengths(), tf.int32),
            "positions": positions.to_tensor(-1),
        }

    def _tokens_of(self, features: dict) -> tf.Tensor:
        numbers = tf.where(features["input_mask"] > 0, features["input_ids"] + 1, 0)
        return tf.gather(tf.constant(["", *self.tokens]), numbers)

    @classmethod
    def client(cls, model: ServedModel, settings: Settings) -> PretrainingClient:
        """Returns a client that asks for the words of [MASK], or for vectors."""
        return PretrainingClient(model, settings["vectors"])


def _tokens(tokenizer: FullTokenizer, config) -> list[str]:
    """Returns the tokens by id, "" for the ids of the model that the vocabulary lacks."""
    return [tokenizer.inv_vocab.get(number, "") for number in range(config.vocab_size)]


def _text_features(texts: dict, reader) -> dict:
    """Makes encoder features of `text_inputs`; [MASK] stays one token if the vocabulary contains it."""
    tokenizer = reader.tokenizer
    encode = tokenizer.encode_with_masks if MASK in reader.vocab else tokenizer.encode
    pair = encode(texts["text_a"]), encode(texts["text_b"])
    return model_inputs(*pair, reader.max_seq_length, reader.vocab)


def _encoded(model, features: dict):
    return model.bert(*(features[name] for name in ENCODER_INPUTS))
