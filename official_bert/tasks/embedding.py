"""Sentence vectors as a task that is only exported: a served `SentenceEncoder`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from official_bert.features import ENCODER_INPUTS
from official_bert.io.errors import InputError
from official_bert.modeling import BertModel
from official_bert.modeling.heads import POOLINGS, normalized, pooled
from official_bert.tasks.base import ServedTask, Settings
from official_bert.tasks.clients import Row, ServedModel, TextClient, Texts, numbers

EMBEDDING = "embedding"


class EmbeddingTask(ServedTask):
    """One vector for each text, pooled from the last layer."""

    text_inputs: ClassVar = {"text_a": [None]}

    def __init__(self, pooling: str = "mean", normalize: bool = True):
        """Sets how the vectors are made; the arguments are those of SentenceEncoder."""
        if pooling not in POOLINGS:
            raise InputError(f"--pooling={pooling}: must be one of {', '.join(POOLINGS)}")
        self.pooling, self.normalize = pooling, normalize

    @classmethod
    def from_settings(cls, variant: None, settings: Settings) -> Self:
        return cls(settings.get("pooling", "mean"), settings.get("normalize", True))

    def build_model(self, config, **arguments) -> BertModel:
        model = BertModel(config, **arguments)
        model.unused_weights = ("bert/pooler",)
        return model

    def serving_outputs(self, model, features: dict) -> dict:
        """Returns `embedding`, float32[B, hidden]."""
        inputs = (features[name] for name in ENCODER_INPUTS)
        encoded = model(*inputs, first_token_only=self.pooling == "cls")
        vectors = pooled(self.pooling, encoded.sequence_output, features["input_mask"])
        return {EMBEDDING: tf.identity(normalized(vectors) if self.normalize else vectors)}

    def serving_text(self, model, texts: dict, reader) -> dict:
        return self.serving_outputs(model, reader.inputs(texts["text_a"], None))

    def settings(self) -> dict[str, Any]:
        return {"pooling": self.pooling, "normalize": self.normalize}

    @classmethod
    def client(cls, model: ServedModel, settings: Settings) -> EmbeddingClient:
        return EmbeddingClient(model)


class EmbeddingClient(TextClient):
    """A client that asks for the vector of a text."""

    method = "embed"

    def __init__(self, model: ServedModel):
        super().__init__(model, ("text_a",))

    def vectors(self, requests: Sequence[Texts]) -> np.ndarray:
        """Returns the vectors of texts, float32[n, width]."""
        return np.stack([row[EMBEDDING] for row in self.rows(requests)])

    def answer(self, row: Row) -> dict:
        return {EMBEDDING: numbers(row[EMBEDDING])}

    def postprocess(self, texts: Texts, answer: dict) -> list[float]:
        return answer[EMBEDDING]
