"""Text classification and regression as a task: one label, several labels or a score for each
example.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

from official_bert.config import BertConfig
from official_bert.graph_text.text_reader import TextReader, run_in_batches
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
    PaddingInputExample,
    encode_examples,
    log_first_examples,
)
from official_bert.tasks.classification.glue import PROCESSORS, GlueProcessor
from official_bert.tasks.classification.label_report import report_labels
from official_bert.tasks.classification.output_kinds import (
    LABEL_SCORES,
    Arrays,
    choose_output_kind,
)
from official_bert.tasks.classification.prediction_records import (
    describe_label,
    describe_labels,
    describe_texts,
)
from official_bert.tasks.classification.processor import DataProcessor
from official_bert.tasks.classification.settings import ClassificationSettings
from official_bert.tasks.classification.text import FILE_FLAGS, TextProcessor, refuse_text_flags
from official_bert.tasks.classification.windows import LongTexts
from official_bert.tasks.clients import ServedModel
from official_bert.tokenization import FullTokenizer

# No ratio of labels is larger, and the losses are far from an overflow.
_LARGEST_CLASS_WEIGHT = 1e6
_SET_NAMES = {"train": "training", "dev": "development", "test": "test"}
_RECORD_STEMS = {"train": "train", "dev": "eval", "test": "predict"}

Features = dict[str, tf.Tensor]
# A model, or a call of it with fixed arguments: features -> logits, [B, outputs].
Model = Callable[[Features], tf.Tensor]


class ClassificationObjective(TaskObjective):
    """The objective of a task whose best constant output is known."""

    def __init__(self, model: Model, task: "ClassificationTask"):
        """Make the objective of a model.

        Args:
            model: the model that is trained.
            task: the task, which computes losses and weights.
        """
        super().__init__(model, task.losses, task.weights)
        self._output_kind = task.output_kind

    def constant_losses(self, encoded: EncodedExamples) -> np.ndarray:
        """Return the losses of the mean score, or of the labels' shares as probabilities.

        Args:
            encoded: the training set.
        """
        return self._output_kind.constant_losses(encoded.label_ids)


class ClassificationTask(Task):
    """A task of run_classifier.py. Devlin et al. (2019), section 4.1.

    Attributes:
        processor: reads the examples and names the metrics.
        long_texts: how texts are cut into windows; None truncates them.
        abstain_below: the probability below which the model abstains; None if it never does.
        temperature: the divisor of the logits before probabilities are computed; None for 1.
        class_weights: the weight of each label's examples in the training loss; None for 1.
        output_kind: what the outputs are: one label, several labels or a score.
        main_metric: key of `metrics` by which checkpoints and runs are compared.
    """

    settings_class = ClassificationSettings

    def __init__(
        self,
        processor: DataProcessor,
        class_weights: Sequence[float] | None = None,
        long_texts: LongTexts | None = None,
        abstain_below: float | None = None,
        temperature: float | None = None,
    ):
        """Make the task of a processor; `ClassificationTask` documents the arguments.

        Raises:
            InputError: the arguments contradict each other.
        """
        self.processor = processor
        self.long_texts = long_texts
        self.abstain_below = abstain_below
        self.temperature = temperature
        self.class_weights = class_weights
        self.output_kind = choose_output_kind(processor, abstain_below)
        self.main_metric = f"eval_{processor.main_metric}"
        self._test_dir = ""  # the folder of the test sets, once they are read
        self._tokenizer: FullTokenizer | None = None  # of the sets, once they are encoded
        processor.allows_unknown_labels = abstain_below is not None
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
        """Make the task of a run or of an export.

        Args:
            variant: the class of the processor.
            settings: the flags of the run, or the recorded settings.

        Raises:
            InputError: the settings contradict each other.
        """
        if not issubclass(variant, TextProcessor):
            refuse_text_flags(settings.values, FILE_FLAGS)
        class_weights = _parse_class_weights(settings.class_weights)
        processor = _make_processor(variant, settings)
        if settings.calibrate and processor.is_regression:
            raise InputError("--calibrate: a regression has no probabilities; leave it out")
        recorded_temperature = None
        if not settings.do_train:
            recorded_temperature = temperature.check_temperature(settings.temperature)
        return cls(
            processor,
            class_weights,
            long_texts=LongTexts.from_settings(settings),
            abstain_below=_check_threshold(settings),
            temperature=recorded_temperature,
        )

    @property
    def labels(self) -> list[str] | None:
        """All labels, in the order of the outputs; None in regression."""
        return self.processor.get_labels()

    @property
    def _label_names(self) -> list[str]:
        """All labels, in the order of the outputs; empty in regression."""
        return self.labels or []

    def read(self, data_files: DataFiles, set_name: str) -> dict[str, list[InputExample]]:
        """Read the sets of a name; a task without labels for evaluation has no dev set.

        Args:
            data_files: the files of the run.
            set_name: train, dev or test.

        Returns:
            The examples of each set by the suffix of its result files.

        Raises:
            InputError: a file is missing or cannot be used, or the labels do not fit the metrics or
                the class weights.
        """
        data_dir = data_files.data_dir or ""
        processor = self.processor
        if isinstance(processor, TextProcessor):
            processor.named = data_files.named
            processor.allows_equal_scores = not self.learns_from_labels_alone
        elif not data_dir:
            raise InputError("--data_dir: must be given")
        if set_name == "train":
            sets = {"": processor.get_train_examples(data_dir)}
            # The training set may define the labels.
            self._check_main_metric()
            self._check_class_weights()
        elif set_name == "dev":
            sets = processor.dev_sets(data_dir)
        else:
            sets = processor.test_sets(data_dir)
            self._test_dir = data_dir
        for examples in sets.values():
            _check_examples(examples, data_dir, set_name)
        return sets

    def _check_main_metric(self):
        """Raises InputError if labels of this number do not have the main metric."""
        if not self.output_kind.has_label_scores(self.processor.metrics):
            return
        main = self.processor.main_metric
        num_labels = len(self._label_names)
        if num_labels == 2 and self.output_kind.has_one_label:
            absent = [f"micro_{name}" for name in LABEL_SCORES]
            alternative = main.removeprefix("micro_")
        else:
            absent = LABEL_SCORES
            alternative = f"micro_{main} or macro_{main}"
        if main in absent:
            raise InputError(
                f"{type(self.processor).__name__}: {num_labels} labels do not have the main metric "
                f"{main}; name {alternative}"
            )

    def _check_class_weights(self):
        """Logs the class weights; raises InputError if there are more or fewer than labels."""
        weights = self.class_weights
        if not weights:
            return
        labels = self._label_names
        if len(weights) != len(labels):
            raise InputError(
                f"--class_weights: {len(weights)} weights for {len(labels)} labels "
                f"({', '.join(map(str, labels))}); give one for each, in this order"
            )
        pairs = zip(labels, weights, strict=True)
        texts = [f"{label}: {weight:g}" for label, weight in pairs]
        logging.info("Class weights: %s", ", ".join(texts))

    def encode(
        self,
        examples: Sequence[InputExample | PaddingInputExample],
        tokenizer: FullTokenizer,
        max_seq_length: int,
        set_name: str,
    ) -> EncodedExamples:
        """Encode a set, and log its first examples.

        Args:
            examples: the examples.
            tokenizer: the tokenizer of the model.
            max_seq_length: the largest length in tokens, special tokens included.
            set_name: train, dev or test.
        """
        self._tokenizer = tokenizer
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
        # Only the original's processors have the original's buffer, not users' subclasses of them.
        buffer_size = vars(type(self.processor)).get("shuffle_buffer_size", 0)
        sources = ()
        if set_name == "dev":  # Reports name the mistakes in it.
            sources = [getattr(example, "source", None) for example in examples]
        return dataclasses.replace(
            encoded,
            shuffle_buffer_size=buffer_size,
            record_stem=_RECORD_STEMS[set_name],
            sources=sources,
        )

    def build_model(self, config: BertConfig, **arguments: Any) -> BertClassifier:
        """Build a model with an output for each label, or with one output in regression.

        Args:
            config: the configuration of the model.
            **arguments: further arguments of `BertClassifier`.
        """
        num_outputs = 1 if self.labels is None else len(self.labels)
        return BertClassifier(config, num_outputs, **arguments)

    def objective(self, model: Model) -> TaskObjective:
        """Return the mean cross-entropy of the label or of all labels, or the mean squared error.

        Args:
            model: the model that is trained.
        """
        if self.class_weights:
            return TaskObjective(model, self.losses, self.weights)
        return ClassificationObjective(model, self)

    def losses(self, model: Model, features: Features) -> tf.Tensor:
        """Return the loss of each example, float32[B]; see `OutputKind.losses`.

        Args:
            model: the model.
            features: a batch.
        """
        return self.output_kind.losses(model(features), features["label_ids"])

    def weights(self, features: Features) -> tf.Tensor:
        """Return the weight of each example, float32[B].

        It is 0 for padding examples, else 1 or the weight of the label. The windows of a text share
        its weight.

        Args:
            features: a batch.
        """
        real = ops.cast(features["is_real_example"], "float32")
        if "example_weight" in features:
            real = real * features["example_weight"]
        if self.class_weights is None:
            return real
        weights = ops.convert_to_tensor(self.class_weights, "float32")
        return real * ops.take(weights, features["label_ids"])

    def outputs(self, model: Model, features: Features) -> dict[str, tf.Tensor]:
        """Return the outputs of a batch for evaluation and prediction.

        Args:
            model: the model.
            features: the batch.

        Returns:
            `logits` and `probabilities`, float32[B, labels], or `score`, float32[B]; and `loss`,
            float32[B].
        """
        logits = ops.cast(model(features), "float32")
        losses = self.output_kind.losses(logits, features["label_ids"])
        return self.output_kind.outputs(logits) | {"loss": losses}

    def example_outputs(self, encoded: EncodedExamples, outputs: Arrays) -> Arrays:
        """Return the outputs for the texts of a set.

        Args:
            encoded: the set.
            outputs: the outputs of the model for all rows, each [rows, ...].

        Returns:
            The outputs for the texts, each [n, ...]. They are pooled if the texts have windows. The
            probabilities of a calibrated model are calibrated; its logits and losses are not. With
            examples out of scope there is also `loss_weight`, float32[n], which is 0 for them.
        """
        if self.long_texts and encoded.num_windows is not None:

            def recompute(pooled: np.ndarray) -> Arrays:
                return self.output_kind.pooled_outputs(pooled, encoded.label_ids)

            outputs = self.long_texts.pool_outputs(outputs, encoded.num_windows, recompute)
        if self.temperature:
            scaled = outputs["logits"] / np.float32(self.temperature)
            is_multi_label = not self.output_kind.has_one_label
            probabilities = calibration.probabilities(scaled, is_multi_label)
            outputs = outputs | {"probabilities": probabilities}
        if encoded.is_out_of_scope is not None:
            is_in_scope = ~encoded.is_out_of_scope
            outputs = outputs | {"loss_weight": is_in_scope.astype(np.float32)}
        return outputs

    def calibrate(self, encoded: EncodedExamples, outputs: Arrays) -> None:
        """Fit the temperature on a set with labels.

        Args:
            encoded: the set.
            outputs: the outputs for its texts, each [n, ...].
        """
        logits, targets = _select_in_scope(encoded, outputs["logits"])
        self.temperature = temperature.fitted(logits, targets)

    def predictions(self, outputs: Arrays) -> np.ndarray:
        """Return the predictions for all examples, [n, ...]; see `OutputKind.predictions`.

        Args:
            outputs: the outputs for the texts of a set, each [n, ...].
        """
        return self.output_kind.predictions(outputs)

    def metrics(self, encoded: EncodedExamples, outputs: Arrays) -> dict[str, float]:
        """Compute the metrics of the processor.

        Args:
            encoded: the set.
            outputs: the outputs for its texts, each [n, ...].

        Returns:
            The metrics under keys of the original's form, such as `eval_accuracy`.
        """
        all_predictions = self.predictions(outputs)
        predictions, targets = _select_in_scope(encoded, all_predictions)
        scores = self.output_kind.metrics(
            self.processor.metrics,
            targets,
            predictions,
            self._label_names,
        )
        if self.abstain_below is not None:
            is_out_of_scope = encoded.is_out_of_scope
            if is_out_of_scope is None:
                is_out_of_scope = np.zeros(len(encoded), bool)
            scores |= classification.abstaining(
                encoded.label_ids,
                all_predictions,
                is_answered=outputs["probabilities"].max(-1) >= self.abstain_below,
                is_out_of_scope=is_out_of_scope,
            )
        results = {f"eval_{name}": value for name, value in scores.items()}
        if self.temperature:
            logits, targets = _select_in_scope(encoded, outputs["logits"])
            results |= temperature.scores(logits, targets, self.temperature)
        return results

    def report(
        self, output_dir: str, encoded: EncodedExamples, outputs: Arrays, suffix: str = ""
    ) -> None:
        """Write the files that explain an evaluation.

        These are confusion_matrix.tsv for a task of one label, with the scores of each label in the
        log, and reliability.tsv for a calibrated model.

        Args:
            output_dir: the folder of the files.
            encoded: the set.
            outputs: the outputs for its texts, each [n, ...].
            suffix: the suffix of the set in the names of the files.
        """
        if self.temperature:
            logits, targets = _select_in_scope(encoded, outputs["logits"])
            temperature.write_reliability(output_dir, suffix, logits, targets, self.temperature)
        if self.output_kind.has_one_label:
            labels = self._label_names
            path = os.path.join(output_dir, f"confusion_matrix{suffix}.tsv")
            predictions, targets = _select_in_scope(encoded, self.predictions(outputs))
            report_labels(path, targets, predictions, labels)
            names = [f"eval_{name}" for name in LABEL_SCORES if name in self.processor.metrics]
            if names and len(labels) == 2:
                logging.info("%s: of the label %s", ", ".join(names), labels[1])

    def describe_predictions(
        self, encoded: EncodedExamples, outputs: Arrays
    ) -> Iterator[dict[str, Any]]:
        """Describe the predictions for all texts; see `OptionalMembers`.

        Args:
            encoded: the set.
            outputs: the outputs for its texts, each [n, ...].
        """
        assert self._tokenizer is not None  # The set was encoded.
        labels = self._label_names
        predictions = self.predictions(outputs)

        def describe(index: int) -> dict[str, Any]:
            if self.output_kind.has_one_label:
                return describe_label(encoded, outputs, labels, index)
            target = encoded.label_ids[index]
            if self.labels is None:
                return {"label": float(target), "prediction": float(predictions[index])}
            probabilities = outputs["probabilities"][index]
            return describe_labels(target, predictions[index], probabilities, labels)

        return describe_texts(encoded, describe, self._tokenizer.convert_ids_to_tokens)

    def write_predictions(
        self, output_dir: str, encoded: EncodedExamples, outputs: Arrays, suffix: str = ""
    ) -> None:
        """Write test_results.tsv: a line for each example with the probability of each label, in
        order, or with the score.

        For a task of GLUE, write also the file for GLUE's site, into the folder glue_submission.

        Args:
            output_dir: the folder of the files.
            encoded: the set.
            outputs: the outputs for its texts, each [n, ...].
            suffix: the suffix of the set in the names of the files.
        """
        logging.info("***** Predict results *****")
        values = self.output_kind.columns(outputs)
        path = os.path.join(output_dir, f"test_results{suffix}.tsv")
        with writing.replacing(path) as file:
            for row in values.astype(np.float32):
                file.write("\t".join(map(str, row)) + "\n")
        logging.info("Wrote %s", path)
        processor = self.processor
        # Users' subclasses may read other files than GLUE's.
        is_original = type(processor) in PROCESSORS.values()
        if not (self._test_dir and isinstance(processor, GlueProcessor) and is_original):
            return
        if not processor.has_index:
            return
        try:
            path = processor.write_submission(
                folder=os.path.join(output_dir, "glue_submission"),
                data_dir=self._test_dir,
                predictions=self.predictions(outputs),
                suffix=suffix,
            )
        except InputError as error:
            # Predictions do not need GLUE's indices, so that the run goes on without them.
            logging.warning("no file for GLUE's site is written: %s", error)
        else:
            logging.info("Wrote %s", path)

    def serving_outputs(self, model: Model, features: Features) -> dict[str, tf.Tensor]:
        """Return the outputs of an export of tensors.

        Args:
            model: the model.
            features: the encoder features, int32[B, S] each.

        Returns:
            - In regression `score`, float32[B].
            - Else `logits` and `probabilities`, float32[B, labels]. The logits of a calibrated
              model are divided by its temperature.
            - With one label for each example, `label`, string[B]: the most probable label, or ""
              below --abstain_below.
            - With several labels, `labels`, string[B, labels]: the labels with a probability above
              0.5, and "" in place of the others.
        """
        return self._answers(tf.cast(model(features), tf.float32))

    def _answers(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        if self.temperature:
            logits = logits / self.temperature
        return self.output_kind.answers(logits, self._label_names)

    @property
    def text_inputs(self) -> dict[str, list[None]]:
        """The text or the pair; a second text without a token counts as absent."""
        names = ("text_a",) if self._num_texts == 1 else ("text_a", "text_b")
        return {name: [None] for name in names}

    @property
    def _num_texts(self) -> int | None:
        """1 or 2 texts for each example; None if an example may be a text or a pair."""
        if self.long_texts or not self.processor.has_pairs:
            return 1
        return 2 if self.processor.needs_pairs else None

    def serving_text(
        self, model: Model, texts: dict[str, tf.Tensor], reader: TextReader
    ) -> dict[str, tf.Tensor]:
        """Return the outputs of an export of text.

        Args:
            model: the model.
            texts: the texts by input, string[B] each.
            reader: makes encoder features of texts.

        Returns:
            The same outputs as `serving_outputs`. For texts in windows they are computed from the
            pooled logits.
        """
        if self.long_texts is None:
            return self.serving_outputs(model, reader.inputs(texts["text_a"], texts.get("text_b")))
        ids = reader.tokenizer.encode(texts["text_a"])
        features, text_indices = reader.text_windows(ids, self.long_texts.doc_stride)
        logits = run_in_batches(
            lambda batch: tf.cast(model(batch), tf.float32), features, tf.float32
        )
        num_outputs = len(self._label_names) or 1
        logits = tf.ensure_shape(logits, [None, num_outputs])
        return self._answers(self.long_texts.pool_in_graph(logits, text_indices))

    def settings(self) -> dict[str, Any]:
        """Return the settings that a record keeps, as JSON values by flag name.

        Among them is `num_texts`, 1 or 2; None if an example may be a text or a pair.
        """
        long_texts = self.long_texts
        settings = ClassificationSettings(
            abstain_below=self.abstain_below,
            temperature=self.temperature,
            long_texts=WINDOWS if long_texts else None,
            doc_stride=long_texts.doc_stride if long_texts else None,
            pooling=long_texts.pooling if long_texts else None,
        )
        return {
            "num_texts": self._num_texts,
            **self.processor.settings(),
            **settings.to_record(),
        }

    @classmethod
    def client(cls, model: ServedModel, settings: ClassificationSettings) -> ClassificationClient:
        """Return the client of an export.

        Args:
            model: the export.
            settings: the recorded settings, updated with the flags of official-bert predict.

        Raises:
            InputError: the settings do not fit the outputs of the export.
        """
        if settings.num_texts not in (None, 1, 2):
            raise InputError(
                f"{model.path}: its record has {settings.num_texts!r} as num_texts; export the "
                "model again"
            )
        label_type = SINGLE
        if "labels" in model.outputs:
            label_type = MULTI
        elif "score" in model.outputs:
            label_type = SCORE
        recorded_type = settings.values.get("label_type", label_type)
        if recorded_type != label_type:
            raise InputError(
                f"{model.path}: its record says that the labels are {recorded_type}, but the "
                f"model's are {label_type}; restore the record of the export"
            )
        abstain_below = _check_threshold(settings)
        if abstain_below is not None and label_type != SINGLE:
            raise InputError(
                f"abstain_below={abstain_below}: {model.path} has no single label for a text; "
                "leave it out"
            )
        return ClassificationClient(
            model,
            settings.labels,
            settings.num_texts,
            long_texts=LongTexts.from_settings(settings),
            abstain_below=abstain_below,
        )


def _make_processor(
    variant: type[DataProcessor], settings: ClassificationSettings
) -> DataProcessor:
    # Users' subclasses of the processors here are called without arguments, unless they define
    # from_settings themselves.
    if "from_settings" in vars(variant):
        return variant.from_settings(settings)
    return variant()


def _select_in_scope(encoded: EncodedExamples, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the values and the targets, [m, ...], of the examples that are not out of scope."""
    if encoded.is_out_of_scope is None:
        return values, encoded.label_ids
    is_in_scope = ~encoded.is_out_of_scope
    return values[is_in_scope], encoded.label_ids[is_in_scope]


def _check_examples(examples: Sequence[InputExample], data_dir: str, set_name: str):
    """Raises InputError if a user's processor reads no examples, or examples without labels."""
    place = data_dir or f"--{set_name}_file"
    kind = _SET_NAMES[set_name]
    if not examples:
        raise InputError(f"{place}: has no {kind} examples of the task; check --data_dir")
    if set_name == "test":
        return
    for example in examples:
        if example.label is None:
            raise InputError(
                f"{place}: the {kind} example {example.guid} has no label; give it one, or remove "
                "it"
            )


def _check_threshold(settings: ClassificationSettings) -> float | None:
    """Returns the probability below which the model abstains; raises InputError for an invalid
    one.
    """
    return temperature.check_number("abstain_below", settings.abstain_below, lowest=0, highest=1)


def _parse_class_weights(texts: Sequence[str] | None) -> list[float] | None:
    if texts is None:
        return None
    try:
        weights = [float(weight) for weight in texts]
    except ValueError:
        weights = []
    is_valid = all(0.0 <= weight <= _LARGEST_CLASS_WEIGHT for weight in weights)
    if not is_valid or not any(weights):
        raise InputError(
            f"--class_weights={','.join(texts)}: give numbers separated by commas, none negative "
            f"and not all of them 0, up to {_LARGEST_CLASS_WEIGHT:g}"
        )
    return weights
