"""Multiple choice as a task: a softmax over the scores of the choices. Devlin et al. (2019),
section 4.4.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

from official_bert.features import EncodedSet
from official_bert.io import writing
from official_bert.metrics import classification
from official_bert.modeling import BertChoice
from official_bert.modeling.losses import cross_entropy
from official_bert.tasks.base import DataFiles, Task, TaskObjective
from official_bert.tasks.choice.examples import (
    NUM_CHOICES,
    SWAG,
    ChoiceExample,
    ChoiceFiles,
    EncodedChoices,
    check_labels,
    encoded_choices,
)
from official_bert.tasks.clients import Row, ServedModel, TextClient, Texts, num_tokens, numbers
from official_bert.tasks.settings import TaskSettings

if TYPE_CHECKING:
    import keras

    from official_bert.config import BertConfig
    from official_bert.graph_text.text_reader import TextReader
    from official_bert.modeling.layers import Tensor
    from official_bert.tokenization import FullTokenizer


class ChoiceTask(Task):
    main_metric = "eval_accuracy"
    num_choices = NUM_CHOICES
    text_inputs: ClassVar = {"context": [None], "endings": [None, NUM_CHOICES]}

    def __init__(self, layout: ChoiceFiles = SWAG):
        self._layout = layout

    @classmethod
    def from_settings(cls, variant: ChoiceFiles | None, settings: TaskSettings) -> Self:
        return cls(variant or SWAG)

    def read(self, data_files: DataFiles, set_name: str) -> dict[str, list[ChoiceExample]]:
        path = data_files.path(set_name, self._layout.names[set_name])
        examples = self._layout.read(path, set_name, set_name != "test")
        if set_name != "test":
            labels = [example.label for example in examples if example.label is not None]
            check_labels(path, labels)
        return {"": examples}

    def encode(
        self, examples: Sequence, tokenizer: FullTokenizer, max_seq_length: int, set_name: str
    ) -> EncodedChoices:
        return encoded_choices(examples, max_seq_length, tokenizer)

    def build_model(self, config: BertConfig, **arguments: Any) -> BertChoice:
        return BertChoice(config, **arguments)

    def objective(self, model: keras.Model) -> TaskObjective:
        return TaskObjective(model, self.losses, self.weights)

    def losses(self, model: keras.Model, features: dict) -> Tensor:
        """Computes the cross-entropy of the correct choice.

        Args:
            model: the model, a function from features to the scores of the choices, float[B,
                choices].
            features: encoder features, int32[B, choices, S], and `label_ids`, int32[B].

        Returns:
            float32[B].
        """
        return cross_entropy(model(features), features["label_ids"])

    def weights(self, features: dict) -> Tensor:
        """Returns the weight of each example in the loss, float32[B], which is 1.

        Args:
            features: the features of a batch, with `label_ids`, int32[B].
        """
        return ops.ones_like(features["label_ids"], dtype="float32")

    def outputs(self, model: keras.Model, features: dict) -> dict:
        """Returns `logits` and `probabilities`, float32[B, choices], and `loss`, float32[B]."""
        outputs = self._logits_and_probabilities(model, features)
        return outputs | {"loss": cross_entropy(outputs["logits"], features["label_ids"])}

    def _logits_and_probabilities(self, model: keras.Model, features: dict) -> dict:
        logits = ops.cast(model(features), "float32")
        return {"logits": logits, "probabilities": ops.softmax(logits)}

    def metrics(self, encoded: EncodedChoices, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        scores = classification.accuracy(encoded.label_ids, outputs["probabilities"].argmax(-1))
        return {"eval_accuracy": scores["accuracy"]}

    def describe_predictions(
        self, encoded: EncodedChoices, outputs: dict[str, np.ndarray]
    ) -> Iterator[dict[str, Any]]:
        rows = zip(encoded.label_ids, outputs["probabilities"], encoded.lengths, strict=True)
        for label, probabilities, length in rows:
            (probability,) = numbers([probabilities.max()])
            yield {
                "label": str(label),
                "prediction": str(probabilities.argmax()),
                "probability": probability,
                "tokens": int(length),
            }

    def write_predictions(
        self, output_dir: str, encoded: EncodedSet, outputs: dict[str, np.ndarray], suffix: str = ""
    ) -> None:
        """Writes test_results.tsv: one line per example with the probability of each choice."""
        path = os.path.join(output_dir, f"test_results{suffix}.tsv")
        with writing.replacing(path) as file:
            file.writelines("\t".join(map(str, row)) + "\n" for row in outputs["probabilities"])
        logging.info("Wrote %s", path)

    def serving_outputs(self, model: keras.Model, features: dict) -> dict:
        """Returns `logits` and `probabilities`, float32[B, choices], and the most probable
        `choice`, int32[B].
        """
        outputs = self._logits_and_probabilities(model, features)
        return outputs | {"choice": tf.argmax(outputs["logits"], axis=-1, output_type=tf.int32)}

    def serving_text(self, model: keras.Model, texts: dict, reader: TextReader) -> dict:
        """Returns `serving_outputs` for a context, string[B], and its possible continuations,
        string[B, choices].
        """
        endings = tf.reshape(texts["endings"], [-1])
        features = reader.inputs(tf.repeat(texts["context"], NUM_CHOICES), endings)
        length = tf.shape(features["input_ids"])[1]
        shape = [tf.size(texts["context"]), NUM_CHOICES, length]
        return self.serving_outputs(
            model, {name: tf.reshape(values, shape) for name, values in features.items()}
        )

    @classmethod
    def client(cls, model: ServedModel, settings: TaskSettings) -> ChoiceClient:
        return ChoiceClient(model)


class ChoiceClient(TextClient):
    """A client that asks for the most probable continuation of a context."""

    def __init__(self, model: ServedModel):
        super().__init__(model, ("context", *(f"ending{k}" for k in range(NUM_CHOICES))))

    def is_cut(self, texts: Texts) -> bool:
        context, *endings = texts
        longest = max(num_tokens(self.model.tokenizer, (context, ending)) for ending in endings)
        return longest > self.model.max_seq_length

    def encode(self, requests: Sequence[Texts]) -> EncodedChoices:
        """Encodes requests; each choice and its context are cut together to the model's length."""
        examples = [ChoiceExample("", context, tuple(endings)) for context, *endings in requests]
        return encoded_choices(examples, self.model.max_seq_length, self.model.tokenizer)

    def texts_by_input(self, requests: Sequence[Texts]) -> dict[str, Sequence]:
        return {
            "context": [texts[0] for texts in requests],
            "endings": [texts[1:] for texts in requests],
        }

    def answer(self, row: Row) -> dict:
        """Returns `choice`, counted from 0, and `probabilities`."""
        return {"choice": int(row["choice"]), "probabilities": numbers(row["probabilities"])}
