"""Text classification and regression as a task: one label, several labels or a score for each
example.
"""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

from official_bert.graph_text.text_reader import in_batches
from official_bert.io import writing
from official_bert.io.errors import InputError
from official_bert.metrics import calibration, classification
from official_bert.metrics.classification import confusion_matrix, precision_recall_f1
from official_bert.modeling import BertClassifier
from official_bert.modeling.losses import (
    cross_entropy,
    soft_binary_cross_entropy,
    soft_cross_entropy,
)
from official_bert.options.fine_tuning import MULTI, SCORE, SINGLE, WINDOWS
from official_bert.tasks import temperature
from official_bert.tasks.base import DataFiles, Settings, Task, TaskObjective
from official_bert.tasks.classification.client import LIKELY, ClassificationClient
from official_bert.tasks.classification.examples import (
    EncodedExamples,
    InputExample,
    encoded_examples,
)
from official_bert.tasks.classification.glue import PROCESSORS
from official_bert.tasks.classification.processor import DataProcessor
from official_bert.tasks.classification.text import FILE_FLAGS, TextProcessor, refuse_text_flags
from official_bert.tasks.classification.windows import LongTexts
from official_bert.tasks.clients import ServedModel

_MOST_COLUMNS = 12  # of labels in the log; a terminal breaks the lines of a wider matrix


def report_labels(path: str, targets: np.ndarray, predictions: np.ndarray, labels: Sequence[str]):
    """Logs the scores of each label and the confusion matrix, and writes the matrix as a TSV file.

    A line of the file counts the examples of a true label by the label that was predicted.
    """
    names = [str(label) for label in labels]
    matrix = confusion_matrix(targets, predictions, len(names))
    logging.info("***** Results of each label *****")
    scores = [
        precision_recall_f1(*counts)
        for counts in zip(matrix.diagonal(), matrix.sum(axis=0), matrix.sum(axis=1), strict=True)
    ]
    rows = [
        [name, *(f"{value:.4f}" for value in score.values()), count]
        for name, score, count in zip(names, scores, matrix.sum(axis=1), strict=True)
    ]
    _log_columns([["label", "precision", "recall", "f1", "examples"], *rows])
    rows = [["", *names], *([name, *counts] for name, counts in zip(names, matrix, strict=True))]
    if len(names) <= _MOST_COLUMNS:
        logging.info(
            "***** Confusion matrix: a row for each true label, a column for each predicted one "
            "*****"
        )
        _log_columns(rows)
    with writing.replacing(path) as file:
        file.writelines("\t".join(map(str, row)) + "\n" for row in rows)
    logging.info("Wrote %s", path)


def _log_columns(rows: Iterable[Sequence]):
    """Logs rows in aligned columns: the first to the left, numbers to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for first, *others in texts:
        cells = [
            first.ljust(widths[0]),
            *(text.rjust(width) for text, width in zip(others, widths[1:], strict=True)),
        ]
        logging.info("  %s", "  ".join(cells))


# The metrics that a processor can name, as functions of targets and predictions.
_LABEL_METRICS = {
    "accuracy": classification.accuracy,
    "f1": classification.f1,
    "matthews": classification.matthews,
}
_SCORE_METRICS = {"pearson": classification.pearson, "spearman": classification.spearman}
# Each but "f1" brings all three for each label and, of two labels, those of the second, of more,
# averages.
_OF_A_LABEL = ("precision", "recall", "f1")
_OF_EACH_LABEL = {
    f"{average}{name}" for average in ("", "micro_", "macro_") for name in _OF_A_LABEL
}
_LARGEST_CLASS_WEIGHT = 1e6  # no ratio of labels is larger, and losses stay far from overflow
_RECORD_STEMS = {"train": "train", "dev": "eval", "test": "predict"}


class ClassificationObjective(TaskObjective):
    def constant_losses(self, encoded: EncodedExamples) -> np.ndarray:
        """Returns the losses of the mean score, or of the labels' shares as probabilities."""
        targets = encoded.label_ids
        if targets.dtype.kind == "f":  # regression
            return np.square(targets - np.mean(targets))
        if targets.ndim == 2:  # several labels an example
            shares = np.where(targets, targets.mean(0), 1 - targets.mean(0))  # of the label's value
            return -np.log(shares).mean(-1)
        return -np.log(np.bincount(targets) / len(targets))[targets]


class ClassificationTask(Task):
    """A task of run_classifier.py. Devlin et al. (2019), section 4.1."""

    def __init__(
        self,
        processor: DataProcessor,
        class_weights: Sequence[float] | None = None,
        long_texts: LongTexts | None = None,
        abstain_below: float | None = None,
        temperature: float | None = None,
    ):
        """Makes the task of a processor; `class_weights` weigh each label's examples in the
        training loss.

        `long_texts` says how texts are cut into windows; None truncates them. A text whose most
        probable label is less probable than `abstain_below` gets none. Logits are divided by the
        `temperature`, None for 1.
        """
        self.processor, self.long_texts = processor, long_texts
        self.abstain_below, self.temperature = abstain_below, temperature
        processor.takes_unknown = abstain_below is not None
        self._data_dir = None  # the folder of the test sets, once they are read
        self.main_metric = f"eval_{processor.main_metric}"
        known = {*_SCORE_METRICS} if processor.is_regression else {*_LABEL_METRICS, *_OF_EACH_LABEL}
        if unknown := [
            name for name in (*processor.metrics, processor.main_metric) if name not in known
        ]:
            raise InputError(
                f"{type(processor).__name__}: names the metric {unknown[0]}, which is none of "
                f"{', '.join(sorted(known))}; correct it"
            )
        if class_weights and (processor.is_regression or processor.is_multi_label):
            raise InputError("--class_weights: only for tasks with one label an example")
        self.class_weights = class_weights
        if abstain_below is not None and (processor.is_regression or processor.is_multi_label):
            raise InputError(
                "--abstain_below: only for tasks with one label an example; leave it out"
            )
        if long_texts and processor.needs_pairs:
            raise InputError(
                f"--long_texts={WINDOWS}: is for single texts, and {type(processor).__name__} has "
                "pairs; leave it out"
            )

    @classmethod
    def from_settings(cls, variant: type[DataProcessor], settings: Settings) -> Self:
        if not issubclass(variant, TextProcessor):
            refuse_text_flags(settings, FILE_FLAGS)
        weights = _class_weights(settings.get("class_weights"))
        # A user's subclass of one of our processors is called without arguments, as any class of
        # theirs.
        makes_itself = "from_settings" in vars(variant)
        processor = variant.from_settings(settings) if makes_itself else variant()
        if settings.get("calibrate") and processor.is_regression:
            raise InputError("--calibrate: a regression has no probabilities; leave it out")
        rules = (
            LongTexts.from_settings(settings),
            temperature.number_of(settings, "abstain_below", 0, 1),
        )
        return cls(processor, weights, *rules, temperature.recorded(settings))

    @property
    def labels(self) -> list[str] | None:
        """All labels, in the order of the outputs; None in regression."""
        return self.processor.get_labels()

    def read(self, data_files: DataFiles, set_name: str) -> dict[str, list[InputExample]]:
        """Reads the processor's examples; a task without labels for evaluation has no dev set."""
        data_dir, processor = data_files.data_dir, self.processor
        if isinstance(processor, TextProcessor):
            processor.named = data_files.named
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

    @property
    def _scores_labels(self) -> bool:
        return bool((_OF_EACH_LABEL - _LABEL_METRICS.keys()).intersection(self.processor.metrics))

    def _check_labels(self):
        """Validates the main metric and the weights of the labels, known when the training set
        is read.
        """
        labels, weights, main = self.labels, self.class_weights, self.processor.main_metric
        if self._scores_labels:
            is_binary = len(labels) == 2 and not self.processor.is_multi_label
            if main in (f"micro_{name}" if is_binary else name for name in _OF_A_LABEL):
                raise InputError(
                    f"{type(self.processor).__name__}: the main metric {main} is none of {len(labels)} labels; name "
                    f"{main.removeprefix('micro_') if is_binary else f'micro_{main} or macro_{main}'}"
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
        takes_unknown = self.processor.takes_unknown and set_name == "dev"
        more = {"logs_first": True, "long_texts": self.long_texts, "takes_unknown": takes_unknown}
        encoded = encoded_examples(examples, self.labels, max_seq_length, tokenizer, **more)
        # Not inherited: a user's subclass of an original processor is no task of the original.
        buffer_size = vars(type(self.processor)).get("shuffle_buffer_size", 0)
        return dataclasses.replace(
            encoded, shuffle_buffer_size=buffer_size, record_stem=_RECORD_STEMS[set_name]
        )

    def build_model(self, config, **arguments) -> BertClassifier:
        num_outputs = 1 if self.labels is None else len(self.labels)
        return BertClassifier(config, num_outputs, **arguments)

    def objective(self, model) -> ClassificationObjective:
        """Returns the mean cross-entropy of the label or of all labels, or the mean squared error."""
        objective = TaskObjective if self.class_weights else ClassificationObjective
        return objective(model, self.losses, self.weights)

    def losses(self, model, features: dict):
        """Float32[B]: the cross-entropy of the label, the mean cross-entropy of all labels, or
        the squared error.
        """
        return self._losses(model(features), features["label_ids"])

    def soft_losses(self, outputs, taught, temperature: float):
        if self.processor.is_regression:
            return ops.square(outputs[:, 0] - taught[:, 0])
        loss = soft_binary_cross_entropy if self.processor.is_multi_label else soft_cross_entropy
        return loss(outputs, taught, temperature)

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
        return self._with_probabilities(logits) | {
            "loss": self._losses(logits, features["label_ids"])
        }

    def _with_probabilities(self, logits) -> dict:
        if self.processor.is_regression:
            return {"score": logits[:, 0]}
        probabilities = (
            ops.sigmoid(logits) if self.processor.is_multi_label else ops.softmax(logits)
        )
        return {"logits": logits, "probabilities": probabilities}

    def _losses(self, logits, targets):
        if self.processor.is_regression:
            return ops.square(logits[:, 0] - targets)
        if self.processor.is_multi_label:
            targets = ops.cast(targets, "float32")
            # softplus(x) - x t is the cross-entropy of sigmoid(x) against t.
            return ops.mean(ops.softplus(logits) - logits * targets, axis=-1)
        return cross_entropy(logits, targets)

    def outputs_of_set(self, encoded, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the outputs for texts: pooled, with calibrated probabilities; logits and losses
        are not calibrated.

        With examples out of scope there is the `loss_weight` of the others, float32[n].
        """
        is_multi_label = self.processor.is_multi_label

        def further(values):
            if self.processor.is_regression:
                return {"loss": np.square(values - encoded.label_ids)}
            losses = calibration.losses(values, encoded.label_ids)
            return {
                "probabilities": calibration.probabilities(values, is_multi_label),
                "loss": losses,
            }

        if self.long_texts:
            outputs = self.long_texts.outputs_of_texts(outputs, encoded.num_windows, further)
        if self.temperature:
            scaled = outputs["logits"] / np.float32(self.temperature)
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
        """Returns label ids, int[n]; in multi-label classification 0 or 1, int[n, labels]; in
        regression float[n].
        """
        if self.processor.is_regression:
            return outputs["score"]
        if self.processor.is_multi_label:
            return (outputs["probabilities"] > LIKELY).astype(np.int32)
        return outputs["probabilities"].argmax(-1)

    def metrics(self, encoded: EncodedExamples, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """Returns the processor's metrics under keys of the original's form, such as
        `eval_accuracy`.
        """
        processor, all_predictions = self.processor, self.predictions(outputs)
        predictions, targets = self._in_scope(encoded, all_predictions)
        scores, computed = {}, set()
        if self._scores_labels:
            scores, computed = (
                classification.per_label(targets, predictions, self.labels),
                _OF_EACH_LABEL,
            )
        table = _SCORE_METRICS if processor.is_regression else _LABEL_METRICS
        for name in processor.metrics:
            if name not in computed:
                scores |= table[name](targets, predictions)
        if self.abstain_below is not None:
            is_answered = outputs["probabilities"].max(-1) >= self.abstain_below
            arrays = encoded.label_ids, all_predictions, is_answered, encoded.is_out_of_scope
            scores |= classification.abstaining(*arrays)
        found = {f"eval_{name}": value for name, value in scores.items()}
        if self.temperature:
            found |= temperature.scores(
                *self._in_scope(encoded, outputs["logits"]), self.temperature
            )
        return found

    def report(self, output_dir, encoded, outputs: dict[str, np.ndarray], suffix: str = ""):
        """Reports the scores of each label and writes confusion_matrix.tsv, if an example has one
        label.

        Of a calibrated model it writes reliability.tsv, too.
        """
        if self.temperature:
            targeted = self._in_scope(encoded, outputs["logits"])
            temperature.write_reliability(output_dir, suffix, *targeted, self.temperature)
        if not (self.processor.is_regression or self.processor.is_multi_label):
            path = os.path.join(output_dir, f"confusion_matrix{suffix}.tsv")
            predictions, targets = self._in_scope(encoded, self.predictions(outputs))
            report_labels(path, targets, predictions, self.labels)
            of_second = [f"eval_{name}" for name in _OF_A_LABEL if name in self.processor.metrics]
            if of_second and len(self.labels) == 2:
                logging.info("%s: of the label %s", ", ".join(of_second), self.labels[1])

    def write_predictions(
        self, output_dir, encoded, outputs: dict[str, np.ndarray], suffix: str = ""
    ):
        """Writes test_results.tsv: one line per example with the probability of each label, in
        order, or the score.

        For a task of GLUE, it writes the file that GLUE's site accepts, too, into the folder
        glue_submission.
        """
        logging.info("***** Predict results *****")
        values = (
            outputs["score"][:, None] if self.processor.is_regression else outputs["probabilities"]
        )
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
        outputs = self._with_probabilities(logits)
        if self.processor.is_regression:
            return outputs
        if self.processor.is_multi_label:
            # LiteRT lacks tf.where for strings.
            chosen = tf.where(
                outputs["probabilities"] > LIKELY, tf.range(1, len(self.labels) + 1), 0
            )
            return outputs | {"labels": tf.gather(tf.constant(["", *self.labels]), chosen)}
        best = tf.argmax(outputs["logits"], axis=-1)
        if self.abstain_below is not None:
            is_likely = tf.reduce_max(outputs["probabilities"], axis=-1) >= self.abstain_below
            chosen = tf.where(is_likely, best + 1, 0)
            return outputs | {"label": tf.gather(tf.constant(["", *self.labels]), chosen)}
        return outputs | {"label": tf.gather(tf.constant(self.labels), best)}

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
        return self._answers(self.long_texts.pooled_in_graph(logits, of_windows))

    def settings(self) -> dict[str, Any]:
        """Returns the processor's settings and `num_texts`: 1 or 2, or None if an example may be
        a text or a pair.
        """
        given = {"abstain_below": self.abstain_below, "temperature": self.temperature}
        given |= self.long_texts.settings() if self.long_texts else {}
        given = {name: value for name, value in given.items() if value is not None}
        return {"num_texts": self._num_texts} | self.processor.settings() | given

    @classmethod
    def client(cls, model: ServedModel, settings: Settings) -> ClassificationClient:
        num_texts = settings.get("num_texts")
        if num_texts not in (None, 1, 2):
            raise InputError(
                f"{model.path}: its record has {num_texts!r} as num_texts; export it anew"
            )
        own = MULTI if "labels" in model.outputs else SCORE if "score" in model.outputs else SINGLE
        if (said := settings.get("label_type", own)) != own:
            raise InputError(
                f"{model.path}: its record says that the labels are {said}, but the model's are "
                f"{own}; put the export's own file back"
            )
        rules = (
            LongTexts.from_settings(settings),
            temperature.number_of(settings, "abstain_below", 0, 1),
        )
        if rules[1] is not None and own != SINGLE:
            raise InputError(
                f"abstain_below={rules[1]}: {model.path} has no single label for a text; leave it "
                "out"
            )
        return ClassificationClient(model, settings["labels"], num_texts, *rules)


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
