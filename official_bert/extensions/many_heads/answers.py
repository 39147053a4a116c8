"""Computes the answers of all heads in one graph, with one call of each different encoder.

In: the groups of heads, and token ids or texts. Out: the outputs by name. The output `label` of the
head `intent` is called `intent/label`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from official_bert.extensions.many_heads.head_records import FIRST_TEXT, SECOND_TEXT
from official_bert.extensions.many_heads.heads import Head
from official_bert.features import ENCODER_INPUTS
from official_bert.graph_text.text_reader import TextReader
from official_bert.modeling import BertModel
from official_bert.modeling.layers import override_calls
from official_bert.serving.shared_encoder import SharedEncoder

Tensors = Mapping[str, tf.Tensor]
Outputs = dict[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class CachingReader(TextReader):
    """A TextReader that encodes the same strings once.

    Attributes:
        reader: the reader that encodes them.
        encoded: the strings and their features, by the ids of the strings and the length.
    """

    reader: TextReader
    encoded: dict[tuple, tuple] = dataclasses.field(default_factory=dict)

    def inputs(self, first: tf.Tensor, second: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """Encodes texts or pairs of texts; see `TextReader.inputs`."""
        key = (id(first), id(second), self.max_seq_length)
        if key not in self.encoded:
            # A task may have changed the length of this reader.
            reader = dataclasses.replace(self.reader, max_seq_length=self.max_seq_length)
            features = reader.inputs(first, second)
            # The strings are stored, too, so that no other tensor gets their id.
            self.encoded[key] = (first, second, features)
        return self.encoded[key][-1]


class _CallRecord:
    """What the calls of an encoder in a graph read, by `override_calls`; it computes none.

    Attributes:
        reads_tokens: whether a call reads the vectors of all tokens.
        is_in_loop: whether a call is in a loop of the graph.
    """

    def __init__(self, encoder: BertModel):
        self._encoder = encoder
        self._graph = tf.compat.v1.get_default_graph()
        self.reads_tokens = False
        self.is_in_loop = False

    def __call__(self, layer: keras.layers.Layer, *inputs: Any) -> None:
        if layer is self._encoder:
            first_token_only = inputs[-1]
            self.reads_tokens |= not first_token_only
            self.is_in_loop |= tf.compat.v1.get_default_graph() is not self._graph


class HeadAnswers:
    """The outputs of heads: of one, or of all of them with one call of each different encoder.

    The functions of single heads must be traced first, because they show how each head calls its
    encoder.
    """

    def __init__(self, groups: Sequence[Sequence[Head]]):
        """Prepares the graphs.

        Args:
            groups: the groups of heads whose encoders are equal.
        """
        self._groups = groups
        self._records: dict[str, _CallRecord] = {}

    def answer_features(self, head: Head, features: Tensors) -> Outputs:
        """Returns the outputs of one head.

        Args:
            head: the head.
            features: the encoder features, int32[B, S] each.
        """
        built = head.built

        def answer() -> Outputs:
            return built.task.serving_outputs(built.model, dict(features))

        return self._record(head, answer)

    def answer_texts(self, head: Head, texts: Tensors, reader: TextReader) -> Outputs:
        """Returns the outputs of one head.

        Args:
            head: the head.
            texts: the texts by the names `text_a` and `text_b`, string[B] each.
            reader: makes encoder features of texts.
        """
        built = head.built
        strings = rename_texts(head, texts)

        def answer() -> Outputs:
            return built.task.serving_text(built.model, strings, reader)

        return self._record(head, answer)

    def _record(self, head: Head, answer: Callable[[], Outputs]) -> Outputs:
        record = _CallRecord(head.encoder)
        self._records.setdefault(head.name, record)
        with override_calls(record):
            return answer()

    def answer_all_features(self, features: Tensors) -> Outputs:
        """Returns the outputs of all heads.

        Args:
            features: the encoder features, int32[B, S] each.
        """

        def answer(head: Head) -> Outputs:
            task, model = head.built.task, head.built.model
            return task.serving_outputs(model, dict(features))

        return self._answer_all(answer, features)

    def answer_all_texts(self, texts: Tensors, reader: TextReader) -> Outputs:
        """Returns the outputs of all heads.

        Args:
            texts: the texts by the names `text_a` and `text_b`, string[B] each.
            reader: makes encoder features of texts.
        """
        caching_reader = CachingReader(
            reader.vocab,
            reader.max_seq_length,
            reader.tokenizer,
            reader,
        )

        def answer(head: Head) -> Outputs:
            task, model = head.built.task, head.built.model
            strings = rename_texts(head, texts)
            return task.serving_text(model, strings, caching_reader)

        features = caching_reader.inputs(texts[FIRST_TEXT])
        return self._answer_all(answer, features)

    def _answer_all(self, answer: Callable[[Head], Outputs], features: Tensors) -> Outputs:
        """Returns the outputs of all heads by their names in the export; see `_answer_group`."""
        joined: Outputs = {}
        for group in self._groups:
            group_outputs = self._answer_group(group, answer, features)
            for head_name, outputs in group_outputs.items():
                for name, value in outputs.items():
                    joined[f"{head_name}/{name}"] = value
        return joined

    def _answer_group(
        self, group: Sequence[Head], answer: Callable[[Head], Outputs], features: Tensors
    ) -> dict[str, Outputs]:
        """Returns the outputs of heads with equal encoders, by head.

        Args:
            group: the heads.
            answer: returns the outputs of a head.
            features: the features that the encoder is computed for if all heads call it in loops.
        """
        if len(group) == 1:
            return {group[0].name: answer(group[0])}
        records = {head.name: self._records[head.name] for head in group}
        reads_tokens = any(record.reads_tokens for record in records.values())
        encoders = [head.encoder for head in group]
        shared = SharedEncoder(encoders, not reads_tokens)
        # A loop can use what was computed before it.
        order = sorted(group, key=lambda head: records[head.name].is_in_loop)
        outputs = {}
        with override_calls(shared):
            if records[order[0].name].is_in_loop:
                shared.encode([features[name] for name in ENCODER_INPUTS])
            for head in order:
                outputs[head.name] = answer(head)
        return outputs


def rename_texts(head: Head, texts: Tensors) -> Outputs:
    """Returns the texts that a head reads, by the names that it gives them.

    Args:
        head: the head.
        texts: the texts by the names `text_a` and `text_b`.
    """
    if SECOND_TEXT in head.text_inputs:
        return {name: texts[name] for name in (FIRST_TEXT, SECOND_TEXT)}
    return {head.text_inputs[0]: texts[FIRST_TEXT]}
