"""Choosing one of several continuations as a task: a softmax over their scores. Devlin et al. (2019), section 4.4.

In: the sets of tasks/choice/examples.py. Out: what tasks/base.py asks for, and a file of probabilities.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from official_bert import files
from official_bert.metrics import classification
from official_bert.tasks.choice.examples import NUM_CHOICES, EncodedChoices


class ChoiceTask:
    """A task of run_swag.py."""

    main_metric = "eval_accuracy"
    untrained = ()
    labels = None
    num_choices = NUM_CHOICES
    text_inputs: ClassVar = {"context": [None], "endings": [None, NUM_CHOICES]}

    def build_model(self, config, use_one_hot_embeddings: bool):
        """A BertChoice."""
        from official_bert.modeling import BertChoice

        return BertChoice(config, use_one_hot_embeddings)

    def losses(self, model, features: dict):
        """Float32[B]: cross-entropy of the right choice."""
        from official_bert.modeling.losses import cross_entropy

        logits = model(features)
        return cross_entropy(logits, features["label_ids"])

    def weights(self, features: dict):
        """Float32[B]: every example counts as much."""
        from keras import ops

        return ops.ones_like(features["label_ids"], dtype="float32")

    def outputs(self, model, features: dict) -> dict:
        """`logits` and `probabilities`, float32[B, choices], and `loss`, float32[B]."""
        from official_bert.modeling.losses import cross_entropy

        numbers = self._numbers(model, features)
        return numbers | {"loss": cross_entropy(numbers["logits"], features["label_ids"])}

    def serving_outputs(self, model, features: dict) -> dict:
        """`logits` and `probabilities`, float32[B, choices], and `choice`, int32[B], the most probable one."""
        import tensorflow as tf

        numbers = self._numbers(model, features)
        return numbers | {"choice": tf.argmax(numbers["logits"], axis=-1, output_type=tf.int32)}

    def serving_text(self, model, texts: dict, reader) -> dict:
        """The same for a context, string[B], and what may follow it, `endings`, string[B, choices]."""
        import tensorflow as tf

        endings = tf.reshape(texts["endings"], [-1])
        features = reader.inputs(tf.repeat(texts["context"], NUM_CHOICES), endings)
        length = tf.shape(features["input_ids"])[1]
        shape = [tf.size(texts["context"]), NUM_CHOICES, length]
        return self.serving_outputs(
            model, {name: tf.reshape(values, shape) for name, values in features.items()}
        )

    def _numbers(self, model, features: dict) -> dict:
        from keras import ops

        logits = ops.cast(model(features), "float32")
        return {"logits": logits, "probabilities": ops.softmax(logits)}

    def metrics(self, encoded: EncodedChoices, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """The accuracy, as `eval_accuracy`."""
        found = classification.accuracy(encoded.label_ids, outputs["probabilities"].argmax(-1))
        return {"eval_accuracy": found["accuracy"]}

    def write_predictions(self, path: str, outputs: dict[str, np.ndarray]):
        """Writes test_results.tsv: a line an example, a probability for each choice."""
        with files.replacing(path) as file:
            file.writelines("\t".join(map(str, row)) + "\n" for row in outputs["probabilities"])
