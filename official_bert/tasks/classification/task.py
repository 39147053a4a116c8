"""Text classification and regression as a task: one label, several labels or a score for each
example.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

from official_bert.graph_text.text_reader import in_batches
from official_bert.io import writing
from official_bert.io.errors import InputError
from official_bert.metrics import calibration, classification
from official_bert.modeling import BertClassifier
from official_bert.options.fine_tuning import MULTI, SCORE, SINGLE, WINDOWS
from official_bert.tasks import temperature
from official_bert.tasks.base import DataFiles, Task, TaskObjective
from official_bert.tasks.classification.client import ClassificationClient
from official_bert.tasks.classification.examples import (
    EncodedExamples,
    InputExample,
    encode_examples,
    log_first_examples,
)
from official_bert.tasks.classification.glue import PROCESSORS
from official_bert.tasks.classification.label_report import report_labels
from official_bert.tasks.classification.output_kinds import LABEL_SCORES, output_kind
from official_bert.tasks.classification.processor import DataProcessor
from official_bert.tasks.classification.settings import ClassificationSettings
from official_bert.tasks.classification.text import FILE_FLAGS, TextProcessor, refuse_text_flags
from official_bert.tasks.classification.windows import LongTexts
from official_bert.tasks.clients import ServedModel

_LARGEST_CLASS_WEIGHT = 1e6  # no ratio of labels is larger, and losses stay far from overflow
_RECORD_STEMS = {"train": "train", "dev": "eval", "test": "predict"}


class ClassificationObjective(TaskObjective):
    """The objective of a task whose best constant output is known."""

    def __init__(self, model, task: "ClassificationTask"):
        super().__init__(model, task.losses, task.weights)
        self._output_kind = task.output_kind

    def constant_losses(self, encoded: EncodedExamples) -> np.ndarray:
        """Returns the losses of the mean score, or of the labels' shares as probabilities."""
        return self._output_kind.constant_losses(encoded.label_ids)


class ClassificationTask(Task):
    """A task of run_classifier.py. Devlin et al. (2019), section 4.1."""

    settings_class = ClassificationSettings

    def __init__(
        self,
        processor: DataProcessor,
        class_weights: Sequence[float] | None = None,
        long_texts: LongTexts | None = None,
        abstain_below: float | None = None,
        temperature: float | None = None,
    ):
        """Makes the task of a processor.

        Args:
            processor: reads the examples and names the metrics.
            class_weights: the weight of each label's examples in the training loss; None for 1.
            long_texts: how texts are cut into windows; None truncates them.
            abstain_below: the probability below which the best label is no answer.
            temperature: what logits are divided by; None for 1.

        Raises:
            InputError: the arguments do not go together.
        """
        self.processor, self.long_texts = processor, long_texts
        self.abstain_below, self.temperature = abstain_below, temperature
        processor.allows_unknown_labels = abstain_below is not None
        self._data_dir = None  # the folder of the test sets, once they are read
        self.main_metric = f"eval_{processor.main_metric}"
        self.output_kind = output_kind(processor, abstain_below)
        self.class_weights = class_weights
        if class_weights and not self.output_kind.has_one_label:
            raise InputError("--class_weights: only for tasks with one label an example")
        if abstain_below is not None and not self.output_kind.has_one_label:
            raise InputError(
                "--abstain_below: only for tasks with one label an example; leave it out"
            )
        if long_texts and processor.needs_pairs:
            raise InputError(
                f"--long_texts={WINDOWS}: is for single texts, and {type(processor).__name__} has "
                "pairs; leave it out"
            )

    @classmethod
    def from_settings(cls, variant: type[DataProcessor], settings: ClassificationSettings) -> Self:
        """Makes the task of a processor class; see `ServedTask.from_settings`."""
        if not issubclass(variant, TextProcessor):
            refuse_text_flags(settings.values, FILE_FLAGS)
        class_weights = _class_weights(settings.class_weights)
        # A user's subclass of one of our processors is called without arguments, as any class of
        # theirs.
        makes_itself = "from_settings" in vars(variant)
        processor = variant.from_settings(settings) if makes_itself else variant()
        if settings.calibrate and processor.is_regression:
            raise InputError("--calibrate: a regression has no probabilities; leave it out")
        return cls(
            processor,
            class_weights,
            long_texts=LongTexts.from_settings(settings),
            abstain_below=temperature.check_number("abstain_below", settings.abstain_below, 0, 1),
            temperature=(
                None if settings.do_train else temperature.check_temperature(settings.temperature)
            ),
        )

    @property
    def labels(self) -> list[str] | None:
        """All labels, in the order of the outputs; None in regression."""
        return self.processor.get_labels()

    def read(self, data_files: DataFiles, set_name: str) -> dict[str, list[InputExample]]:
        """Reads the processor's examples; a task without labels for evaluation has no dev set."""
        data_dir, processor = data_files.data_dir, self.processor
        if isinstance(processor, TextProcessor):
            processor.named = data_files.named
            processor.allows_equal_scores = not self.learns_from_labels_alone
        elif not data_dir:
            raise InputError("--data_dir: must be given")
        if set_name == "train":
            sets, kind = {"": processor.get_train_examples(data_dir)}, "training"
            self._check_labels()
        elif set_name == "dev":
            sets, kind = processor.dev_sets(data_dir), "development"
        else:
            sets, kind = processor.test_sets(data_dir), "test"
            self._data_dir = data_dir
        for examples in sets.values():
            _check_examples(examples, data_dir, kind, is_labelled=set_name != "test")
        return sets

    def _check_labels(self):
        """Validates the main metric and the weights of the labels, known when the training set
        is read.
        """
        labels, weights, main = self.labels, self.class_weights, self.processor.main_metric
        if self.output_kind.scores_labels(self.processor.metrics):
            is_binary = len(labels) == 2 and self.output_kind.has_one_label
            absent = [f"micro_{name}" if is_binary else name for name in LABEL_SCORES]
            remedy = main.removeprefix("micro_") if is_binary else f"micro_{main} or macro_{main}"
            if main in absent:
                raise InputError(
                    f"{type(self.processor).__name__}: the main metric {main} is none of "
                    f"{len(labels)} labels; name {remedy}"
                )
        if weights and len(weights) != len(labels):
            raise InputError(
                f"--class_weights: {len(weights)} weights for {len(labels)} labels "
                f"({', '.join(map(str, labels))}); give one for each, in this order"
            )
        if weights:
            pairs = zip(labels, weights, strict=True)
            logging.info(
                "Class weights: %s", ", ".join(f"{label}: {weight:g}" for label, weight in pairs)
            )

    def encode(self, examples, tokenizer, max_seq_length, set_name) -> EncodedExamples:
        allows_unknown_labels = self.processor.allows_unknown_labels and set_name == "dev"
        encoded = encode_examples(
            examples,
            self.labels,
            max_seq_length,
            tokenizer,
            long_texts=self.long_texts,
            allows_unknown_labels=allows_unknown_labels,
        )
        log_first_examples(examples, encoded, max_seq_length, tokenizer)
        # Not inherited: a user's subclass of an original processor is no task of the original.
        buffer_size = vars(type(self.processor)).get("shuffle_buffer_size", 0)
        return dataclasses.replace(
            encoded, shuffle_buffer_size=buffer_size, record_stem=_RECORD_STEMS[set_name]
        )

    def build_model(self, config, **arguments) -> BertClassifier:
        num_outputs = 1 if self.labels is None else len(self.labels)
        return BertClassifier(config, num_outputs, **arguments)

    def objective(self, model) -> TaskObjective:
        """Returns the mean cross-entropy of the label or of all labels, or the mean squared
        error.
        """
        if self.class_weights:
            return TaskObjective(model, self.losses, self.weights)
        return ClassificationObjective(model, self)

    def losses(self, model, features: dict):
        """Returns the loss of each example, float32[B]; see `OutputKind.losses`."""
        return self.output_kind.losses(model(features), features["label_ids"])

    def weights(self, features: dict):
        """Float32[B]: 0 for padding examples, else 1 or the weight of the label, over the
        windows of the text.
        """
        real = ops.cast(features["is_real_example"], "float32")
        if "example_weight" in features:
            real = real * features["example_weight"]
        if self.class_weights is None:
            return real
        weights = ops.convert_to_tensor(self.class_weights, "float32")
        return real * ops.take(weights, features["label_ids"])

    def outputs(self, model, features: dict) -> dict:
        """Returns `logits` and `probabilities`, float32[B, labels], or `score`, float32[B]; and
        `loss`, float32[B].
        """
        logits = ops.cast(model(features), "float32")
        losses = self.output_kind.losses(logits, features["label_ids"])
        return self.output_kind.outputs(logits) | {"loss": losses}

    def outputs_of_set(self, encoded, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the outputs for texts: pooled, with calibrated probabilities; logits and losses
        are not calibrated.

        With examples out of scope there is the `loss_weight` of the others, float32[n].
        """
        if self.long_texts:
            outputs = self.long_texts.pool_outputs(
                outputs,
                encoded.num_windows,
                lambda pooled: self.output_kind.window_outputs(pooled, encoded.label_ids),
            )
        if self.temperature:
            scaled = outputs["logits"] / np.float32(self.temperature)
            is_multi_label = not self.output_kind.has_one_label
            outputs = outputs | {"probabilities": calibration.probabilities(scaled, is_multi_label)}
        if encoded.is_out_of_scope is not None:
            outputs = outputs | {"loss_weight": np.float32(~encoded.is_out_of_scope)}
        return outputs

    def calibrate(self, encoded: EncodedExamples, outputs: dict[str, np.ndarray]):
        self.temperature = temperature.fitted(*self._in_scope(encoded, outputs["logits"]))

    def _in_scope(
        self, encoded: EncodedExamples, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns values [n, ...] of the examples whose label is one of the task's, and their
        targets.
        """
        is_out = getattr(encoded, "is_out_of_scope", None)
        return (
            (values, encoded.label_ids)
            if is_out is None
            else (values[~is_out], encoded.label_ids[~is_out])
        )

    def predictions(self, outputs: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the predictions for all examples, [n, ...]; see `OutputKind.predictions`."""
        return self.output_kind.predictions(outputs)

    def metrics(self, encoded: EncodedExamples, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """Returns the processor's metrics under keys of the original's form, such as
        `eval_accuracy`.
        """
        all_predictions = self.predictions(outputs)
        predictions, targets = self._in_scope(encoded, all_predictions)
        scores = self.output_kind.metrics(self.processor.metrics, targets, predictions, self.labels)
        if self.abstain_below is not None:
            is_answered = outputs["probabilities"].max(-1) >= self.abstain_below
            arrays = encoded.label_ids, all_predictions, is_answered, encoded.is_out_of_scope
            scores |= classification.abstaining(*arrays)
        results = {f"eval_{name}": value for name, value in scores.items()}
        if self.temperature:
            logits, targets = self._in_scope(encoded, outputs["logits"])
            results |= temperature.scores(logits, targets, self.temperature)
        return results

    def report(self, output_dir, encoded, outputs: dict[str, np.ndarray], suffix: str = ""):
        """Reports the scores of each label and writes confusion_matrix.tsv, if an example has one
        label.

        Of a calibrated model it writes reliability.tsv, too.
        """
        if self.temperature:
            logits, targets = self._in_scope(encoded, outputs["logits"])
            temperature.write_reliability(output_dir, suffix, logits, targets, self.temperature)
        if self.output_kind.has_one_label:
            path = os.path.join(output_dir, f"confusion_matrix{suffix}.tsv")
            predictions, targets = self._in_scope(encoded, self.predictions(outputs))
            report_labels(path, targets, predictions, self.labels)
            names = [f"eval_{name}" for name in LABEL_SCORES if name in self.processor.metrics]
            if names and len(self.labels) == 2:
                logging.info("%s: of the label %s", ", ".join(names), self.labels[1])

    def write_predictions(
        self, output_dir, encoded, outputs: dict[str, np.ndarray], suffix: str = ""
    ):
        """Writes test_results.tsv: one line per example with the probability of each label, in
        order, or the score.

        For a task of GLUE, it writes the file that GLUE's site accepts, too, into the folder
        glue_submission.
        """
        logging.info("***** Predict results *****")
        values = self.output_kind.columns(outputs)
        path = os.path.join(output_dir, f"test_results{suffix}.tsv")
        with writing.replacing(path) as file:
            file.writelines("\t".join(map(str, row)) + "\n" for row in values.astype(np.float32))
        logging.info("Wrote %s", path)
        # A user's subclass may read other files.
        is_glue = type(self.processor) in PROCESSORS.values()
        if self._data_dir and is_glue and self.processor.has_index:
            folder = os.path.join(output_dir, "glue_submission")
            try:
                path = self.processor.write_submission(
                    folder, self._data_dir, self.predictions(outputs), suffix
                )
            # The run needs the test set's texts, not GLUE's numbers of them.
            except InputError as error:
                logging.warning("no file for GLUE's site is written: %s", error)
            else:
                logging.info("Wrote %s", path)

    def serving_outputs(self, model, features: dict) -> dict:
        """Returns `score`, float32[B], or `logits` and `probabilities`, float32[B, labels], with
        the labels as strings.

        With one label per example, `label`, string[B], is the most probable label, or "" below
        --abstain_below. In multi-label classification, `labels`, string[B, labels], holds the
        labels with a probability above 0.5, and "" in place of the others. The logits of a
        calibrated model are divided by its temperature.
        """
        return self._answers(tf.cast(model(features), tf.float32))

    def _answers(self, logits) -> dict:
        if self.temperature:
            logits = logits / self.temperature
        return self.output_kind.answers(logits, self.labels)

    @property
    def text_inputs(self) -> dict[str, list]:
        """The text or the pair; a second text without a token counts as absent."""
        names = ("text_a",) if self._num_texts == 1 else ("text_a", "text_b")
        return {name: [None] for name in names}

    @property
    def _num_texts(self) -> int | None:
        if self.long_texts or not self.processor.has_pairs:
            return 1
        return 2 if self.processor.needs_pairs else None

    def serving_text(self, model, texts: dict, reader) -> dict:
        """Returns what `serving_outputs` does, for long texts of the pooled logits of their
        windows.
        """
        if self.long_texts is None:
            return self.serving_outputs(model, reader.inputs(texts["text_a"], texts.get("text_b")))
        ids = reader.tokenizer.encode(texts["text_a"])
        features, of_windows = reader.text_windows(ids, self.long_texts.doc_stride)
        logits = in_batches(lambda batch: tf.cast(model(batch), tf.float32), features, tf.float32)
        logits = tf.ensure_shape(logits, [None, len(self.labels or [SCORE])])
        return self._answers(self.long_texts.pool_in_graph(logits, of_windows))

    def settings(self) -> dict[str, Any]:
        """Returns the processor's settings and `num_texts`: 1 or 2, or None if an example may be
        a text or a pair.
        """
        settings = ClassificationSettings(
            abstain_below=self.abstain_below,
            temperature=self.temperature,
            long_texts=WINDOWS if self.long_texts else None,
            doc_stride=self.long_texts.doc_stride if self.long_texts else None,
            pooling=self.long_texts.pooling if self.long_texts else None,
        )
        return {
            "num_texts": self._num_texts,
            **self.processor.settings(),
            **settings.to_record(),
        }

    @classmethod
    def client(cls, model: ServedModel, settings: ClassificationSettings) -> ClassificationClient:
        """Returns the client of an export whose record fits its outputs."""
        if settings.num_texts not in (None, 1, 2):
            raise InputError(
                f"{model.path}: its record has {settings.num_texts!r} as num_texts; export it anew"
            )
        label_types = {"labels": MULTI, "score": SCORE}
        label_type = next(
            (kind for output, kind in label_types.items() if output in model.outputs), SINGLE
        )
        recorded_type = settings.values.get("label_type", label_type)
        if recorded_type != label_type:
            raise InputError(
                f"{model.path}: its record says that the labels are {recorded_type}, but the "
                f"model's are {label_type}; put the export's own file back"
            )
        long_texts = LongTexts.from_settings(settings)
        abstain_below = temperature.check_number("abstain_below", settings.abstain_below, 0, 1)
        if abstain_below is not None and label_type != SINGLE:
            raise InputError(
                f"abstain_below={abstain_below}: {model.path} has no single label for a text; "
                "leave it out"
            )
        return ClassificationClient(
            model,
            settings.labels,
            settings.num_texts,
            long_texts,
            abstain_below,
        )


def _check_examples(examples: Sequence[InputExample], data_dir: str, kind: str, is_labelled: bool):
    """Validates a set of a user's processor: it has examples, and they have labels."""
    if not examples:
        raise InputError(f"{data_dir}: holds no {kind} example of the task; check --data_dir")
    for example in examples:
        if is_labelled and example.label is None:
            raise InputError(
                f"{data_dir}: the {kind} example {example.guid} has no label; give it one, or "
                "leave it out"
            )


def _class_weights(texts: Sequence[str] | None) -> list[float] | None:
    if texts is None:
        return None
    try:
        weights = [float(weight) for weight in texts]
    except ValueError:
        weights = []
    if not all(0.0 <= weight <= _LARGEST_CLASS_WEIGHT for weight in weights) or not any(weights):
        raise InputError(
            f"--class_weights={','.join(texts)}: give numbers separated by commas, none negative "
            f"and not all of them 0, up to {_LARGEST_CLASS_WEIGHT:g}"
        )
    return weights
