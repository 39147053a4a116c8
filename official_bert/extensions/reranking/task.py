"""Reranking as a task: trained by run_reranker, evaluated, and served."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

from official_bert.config import BertConfig
from official_bert.data.text_tables import Example, read_examples
from official_bert.extensions.reranking import evaluation, serving, training_sets
from official_bert.extensions.reranking.inputs import (
    ScoredPairs,
    TrainingLists,
    build_scored_pairs,
    build_unscored_pairs,
)
from official_bert.extensions.reranking.layout import read_activation
from official_bert.extensions.reranking.losses import LOSSES, Targets
from official_bert.extensions.reranking.options import IDENTITY, SIGMOID
from official_bert.extensions.reranking.rankings import merge_queries, read_ranking
from official_bert.extensions.reranking.settings import RerankingSettings
from official_bert.features import select_encoder_inputs
from official_bert.graph_text.text_reader import InputBuilder, TextReader
from official_bert.io import writing
from official_bert.model_dir import has_checkpoints
from official_bert.modeling import BertClassifier
from official_bert.modeling.losses import encode_each_text
from official_bert.tasks.base import DataFiles, FreeSignature, Task, TaskObjective
from official_bert.tasks.classification.client import ClassificationClient
from official_bert.tasks.clients import ServedModel, numbers
from official_bert.tokenization import FullTokenizer

_ENDINGS = (".tsv", ".csv", ".jsonl", ".parquet")
# The losses that learn the scores of a teacher, which need not be between 0 and 1.
_SCORE_LOSSES = ("margin_mse", "mse")
PREDICTIONS = "test_scores.jsonl"

Features = dict[str, tf.Tensor]


class RerankingTask(Task):
    """A score for a query and a document, from the pooled output of the pair."""

    settings_class = RerankingSettings
    text_inputs: ClassVar = {"text_a": [None], "text_b": [None]}

    def __init__(self, activation: str = SIGMOID, settings: RerankingSettings | None = None):
        """Makes the task.

        Args:
            activation: what is applied to the logit of a pair, "sigmoid" or "identity".
            settings: the other flags of run_reranker; None for their defaults.
        """
        self.activation = activation
        self._settings = settings or RerankingSettings()

    @classmethod
    def from_settings(cls, variant: None, settings: RerankingSettings) -> Self:
        """Makes the task of the flags and of the model's folder; see `ServedTask.from_settings`."""
        activation = settings.activation
        has_model = settings.output_dir and has_checkpoints(settings.output_dir)
        folder = settings.output_dir if has_model else settings.init_checkpoint
        if activation is None and folder:
            activation = read_activation(folder)
        if activation is None:
            activation = IDENTITY if settings.loss in _SCORE_LOSSES else SIGMOID
        return cls(activation, settings)

    @property
    def main_metric(self) -> str:
        return f"eval_{self._settings.main_metric}"

    def read(self, data_files: DataFiles, set_name: str) -> dict[str, list[Example]]:
        path = data_files.path(set_name, [set_name + ending for ending in _ENDINGS])
        return {"": read_examples(path, f"{set_name}_file", self._settings.values)}

    def encode(
        self, examples: Sequence, tokenizer: FullTokenizer, max_seq_length: int, set_name: str
    ) -> TrainingLists | ScoredPairs:
        if set_name == "train":
            return training_sets.encode(examples, tokenizer, max_seq_length, self._settings)
        if set_name == "test":
            return build_unscored_pairs(examples, tokenizer, max_seq_length)
        rankings = merge_queries(map(read_ranking, examples))
        rankings = evaluation.select_rankings(rankings)
        return build_scored_pairs(rankings, tokenizer, max_seq_length)

    def build_model(self, config: BertConfig, **arguments: Any) -> BertClassifier:
        return BertClassifier(config, num_outputs=1, **arguments)

    def objective(self, model: BertClassifier) -> TaskObjective:
        loss = LOSSES[self._settings.loss](self._settings)

        def losses(model: Any, features: Features) -> tf.Tensor:
            return loss(_list_logits(model, features), _targets(features))

        def weights(features: Features) -> tf.Tensor:
            return loss.weights(_targets(features))

        return TaskObjective(model, losses, weights)

    def outputs(self, model: BertClassifier, features: Features) -> Features:
        """Returns `logit` and `score`, float32[B], of pairs."""
        logits = ops.cast(model(features), "float32")[:, 0]
        return {"logit": logits, "score": self._activate(logits)}

    def _activate(self, logits: tf.Tensor) -> tf.Tensor:
        return ops.sigmoid(logits) if self.activation == SIGMOID else logits

    def metrics(self, encoded: ScoredPairs, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        return evaluation.measure(encoded.queries, encoded.labels, outputs["logit"])

    def describe_predictions(
        self, encoded: ScoredPairs, outputs: dict[str, np.ndarray]
    ) -> Iterator[dict[str, Any]]:
        pairs = zip(encoded.queries, encoded.documents, encoded.labels, strict=True)
        for number, (query, document, label) in enumerate(pairs):
            yield {
                "label": float(label),
                "prediction": numbers([outputs["score"][number]])[0],
                "text": f"{encoded.texts[query]} [SEP] {encoded.texts[document]}",
                "tokens": int(encoded.lengths[number]),
            }

    def write_predictions(
        self,
        output_dir: str,
        encoded: ScoredPairs,
        outputs: dict[str, np.ndarray],
        suffix: str = "",
    ) -> None:
        """Writes test_scores.jsonl: the texts of each row of the file with a list of the scores of
        its documents, the positives first, and one of the logits.
        """
        path = os.path.join(output_dir, PREDICTIONS)
        start = 0
        with writing.replacing(path) as file:
            for example in encoded.examples:
                end = start + len(example.positives) + len(example.negatives)
                record = {
                    "query": example.anchor,
                    "positive": example.positives,
                    "negative": example.negatives,
                    "score": numbers(outputs["score"][start:end]),
                    "logit": numbers(outputs["logit"][start:end]),
                }
                file.write(json.dumps(record) + "\n")
                start = end
        logging.info("Wrote %s", path)

    def serving_outputs(self, model: BertClassifier, features: Features) -> Features:
        """Returns `score` and `logit`, float32[B], of pairs."""
        outputs = self.outputs(model, select_encoder_inputs(features))
        return {name: tf.identity(values) for name, values in outputs.items()}

    def serving_text(self, model: BertClassifier, texts: Features, reader: TextReader) -> Features:
        return self.serving_outputs(model, reader.inputs(texts["text_a"], texts["text_b"]))

    def free_signatures(
        self, model: BertClassifier, builder: InputBuilder
    ) -> dict[str, FreeSignature]:
        """Returns `rank`: the scores of the documents of one query."""

        def compute_scores(features: Features) -> tf.Tensor:
            return self.serving_outputs(model, features)["score"]

        return {"rank": serving.make_rank_signature(compute_scores, builder)}

    def settings(self) -> dict[str, Any]:
        return RerankingSettings(activation=self.activation).to_record()

    @classmethod
    def client(cls, model: ServedModel, settings: RerankingSettings) -> ClassificationClient:
        return ClassificationClient(model, labels=None, num_texts=2)


def _targets(features: Features) -> Targets:
    return Targets(features["labels"], features["is_document"])


def _list_logits(model: Any, features: Features) -> tf.Tensor:
    """Returns the logits of the documents of examples, float32[B, N], for features int32[B, N,
    S].
    """
    logits = encode_each_text(model, select_encoder_inputs(features))
    return ops.cast(logits[..., 0], "float32")
