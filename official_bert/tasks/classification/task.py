"""Text classification and regression as a task: one label, several labels at once, or a score.

In: a processor, which reads the files. Out: what tasks/base.py asks for, and the original's prediction file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from official_bert import files
from official_bert.errors import InputError
from official_bert.metrics import classification, regression
from official_bert.tasks.classification.examples import EncodedExamples
from official_bert.tasks.classification.processor import DataProcessor

_SINGLE_LABEL = {
    "accuracy": classification.accuracy,
    "f1": classification.f1,
    "matthews": classification.matthews,
}
_SCORES = {"pearson": regression.pearson, "spearman": regression.spearman}
LIKELY = 0.5  # probability above which one of several labels holds
_PER_LABEL = "precision"  # a processor that names it wants figures for each label


class ClassificationTask:
    """A task of run_classifier.py."""

    untrained = ()
    num_choices = None

    def __init__(
        self,
        processor: DataProcessor,
        labels: Sequence[str] | None,
        class_weights: Sequence[float] | None = None,
    ):
        """Wraps a processor.

        Args:
            processor: reads the examples and names the metrics.
            labels: all labels in the order of the outputs; None in regression.
            class_weights: how much an example of each label counts in the training loss; all the same if None.

        Raises:
            InputError: weights that do not go with the labels.
        """
        self.processor, self.labels = processor, labels
        self.main_metric = f"eval_{processor.main_metric}"
        if class_weights and (processor.is_regression or processor.is_multi_label):
            raise InputError("--class_weights: only for tasks with one label an example")
        if class_weights and len(class_weights) != len(labels):
            raise InputError(
                f"--class_weights: {len(class_weights)} weights for {len(labels)} labels "
                f"({', '.join(map(str, labels))}); give one for each, in this order"
            )
        self.class_weights = class_weights

    def build_model(self, config, use_one_hot_embeddings: bool):
        """A BertClassifier with an output for each label, or one."""
        from official_bert.modeling import BertClassifier

        return BertClassifier(config, len(self.labels or "1"), use_one_hot_embeddings)

    def losses(self, model, features: dict):
        """Float32[B]: cross-entropy of the label, mean cross-entropy of all labels, or squared error."""
        logits = model(features)
        return self._losses(logits, features["label_ids"])

    def weights(self, features: dict):
        """Float32[B]: 0 for padding examples, else 1 or the label's weight."""
        from keras import ops

        real = ops.cast(features["is_real_example"], "float32")
        if self.class_weights is None:
            return real
        weights = ops.convert_to_tensor(self.class_weights, "float32")
        return real * ops.take(weights, features["label_ids"])

    def outputs(self, model, features: dict) -> dict:
        """`logits` and `probabilities`, float32[B, labels], or `score`, float32[B]; and `loss`, float32[B]."""
        from keras import ops

        logits = ops.cast(model(features), "float32")
        return self._numbers(logits) | {"loss": self._losses(logits, features["label_ids"])}

    def serving_outputs(self, model, features: dict) -> dict:
        """`score`, float32[B], or `logits` and `probabilities`, float32[B, labels], with strings:

        `label`, string[B], the most probable one; or, with several at once, `labels`, string[B, labels], those that
        are more probable than not, with "" in the places of the others.
        """
        import tensorflow as tf

        numbers = self._numbers(tf.cast(model(features), tf.float32))
        if self.processor.is_regression:
            return numbers
        if self.processor.is_multi_label:
            # Not tf.where of strings, which LiteRT lacks.
            chosen = tf.where(numbers["probabilities"] > LIKELY, tf.range(1, len(self.labels) + 1), 0)
            return numbers | {"labels": tf.gather(tf.constant(["", *self.labels]), chosen)}
        best = tf.argmax(numbers["logits"], axis=-1)
        return numbers | {"label": tf.gather(tf.constant(self.labels), best)}

    @property
    def text_inputs(self) -> dict[str, list]:
        """The text, or the pair; a second text without a piece counts as absent."""
        names = ("text_a", "text_b") if self.processor.has_pairs else ("text_a",)
        return {name: [None] for name in names}

    def serving_text(self, model, texts: dict, reader) -> dict:
        """The same for texts."""
        return self.serving_outputs(model, reader.inputs(texts["text_a"], texts.get("text_b")))

    def _numbers(self, logits) -> dict:
        from keras import ops

        if self.processor.is_regression:
            return {"score": logits[:, 0]}
        chances = ops.sigmoid(logits) if self.processor.is_multi_label else ops.softmax(logits)
        return {"logits": logits, "probabilities": chances}

    def _losses(self, logits, targets):
        from keras import ops

        from official_bert.modeling.losses import cross_entropy

        if self.processor.is_regression:
            return ops.square(logits[:, 0] - targets)
        if self.processor.is_multi_label:
            targets = ops.cast(targets, "float32")
            # softplus(x) - x t is the cross-entropy of sigmoid(x) against t.
            return ops.mean(ops.softplus(logits) - logits * targets, axis=-1)
        return cross_entropy(logits, targets)

    def predictions(self, outputs: dict[str, np.ndarray]) -> np.ndarray:
        """Int[n], the most probable label; 0 or 1 int[n, labels] with several at once; float[n] scores."""
        if self.processor.is_regression:
            return outputs["score"]
        if self.processor.is_multi_label:
            return (outputs["probabilities"] > LIKELY).astype(np.int32)
        return outputs["probabilities"].argmax(-1)

    def metrics(self, encoded: EncodedExamples, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """The processor's metrics under the original's kind of key: `eval_accuracy`."""
        processor, targets, predictions = self.processor, encoded.label_ids, self.predictions(outputs)
        found = {}
        if _PER_LABEL in processor.metrics:
            found |= classification.per_label(targets, predictions, self.labels)
        table = _SCORES if processor.is_regression else _SINGLE_LABEL
        for name in processor.metrics:
            if name not in found:
                found |= table[name](targets, predictions)
        return {f"eval_{name}": value for name, value in found.items()}

    def write_predictions(self, path: str, outputs: dict[str, np.ndarray]):
        """Writes test_results.tsv: a line an example, probabilities in the order of the labels, or the score."""
        values = outputs["score"][:, None] if self.processor.is_regression else outputs["probabilities"]
        with files.replacing(path) as file:
            file.writelines("\t".join(map(str, row)) + "\n" for row in values.astype(np.float32))
