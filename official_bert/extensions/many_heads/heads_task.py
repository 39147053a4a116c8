"""All heads as one task, which converters of other formats and Predictor use like any other.

In: the heads. Out: a `TrainedModel` whose outputs are those of all heads, as `intent/label`. Or in:
an opened export. Out: the client of all heads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NoReturn

import keras

from official_bert.config import BertConfig
from official_bert.extensions.many_heads.answers import HeadAnswers, Outputs, Tensors
from official_bert.extensions.many_heads.client import HeadsClient
from official_bert.extensions.many_heads.head_records import FAMILY
from official_bert.extensions.many_heads.heads import Head, name_texts
from official_bert.graph_text.text_reader import TextReader
from official_bert.serving.export import TrainedModel
from official_bert.tasks.base import ServedTask
from official_bert.tasks.settings import TaskSettings


class HeadsTask(ServedTask):
    """The outputs of all heads."""

    def __init__(self, groups: Sequence[Sequence[Head]]):
        """Prepares the outputs.

        Args:
            groups: the groups of heads whose encoders are equal.
        """
        self._answers = HeadAnswers(groups)
        self._heads = [head for group in groups for head in group]
        self.text_inputs = name_texts(self._heads)

    def build_model(self, config: BertConfig, **arguments: Any) -> NoReturn:
        """Refuses to build a model, because the models of the heads are trained."""
        raise NotImplementedError("the heads have models")

    def serving_outputs(self, model: keras.Model, features: Tensors) -> Outputs:
        """Returns the outputs of all heads.

        Args:
            model: not read.
            features: the encoder features, int32[B, S] each.
        """
        for head in self._heads:
            self._answers.answer_features(head, features)
        return self._answers.answer_all_features(features)

    def serving_text(self, model: keras.Model, texts: Tensors, reader: TextReader) -> Outputs:
        """Returns the outputs of all heads.

        Args:
            model: not read.
            texts: the texts by the names `text_a` and `text_b`, string[B] each.
            reader: makes encoder features of texts.
        """
        for head in self._heads:
            self._answers.answer_texts(head, texts, reader)
        return self._answers.answer_all_texts(texts, reader)

    @classmethod
    def client(cls, model: Any, settings: TaskSettings) -> HeadsClient:
        """Returns the client of an export of many heads.

        Args:
            model: the opened export.
            settings: not read; the record of the export has those of each head.

        Raises:
            InputError: the record has no heads, or a head has a wrong field.
        """
        return HeadsClient(model)


def join_heads(groups: Sequence[Sequence[Head]]) -> TrainedModel:
    """Returns all heads as one trained model. Its labels are only in the outputs.

    Args:
        groups: the groups of heads whose encoders are equal.
    """
    first = groups[0][0].built
    return first._replace(
        options=dataclasses.replace(first.options, task_name=FAMILY),
        task=HeadsTask(groups),
    )
