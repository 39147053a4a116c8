"""The contract of a task over its whole life. Code outside a task's own folder or file uses only
this contract.

`fine_tune` trains a `Task`, `pretrain` a `TrainableTask`. A `ServedTask`, such as a sentence
encoder, can only be exported. `OptionalMembers` are what few tasks need. docs/adding_a_task.md
shows how to write a task outside it.
"""

from __future__ import annotations

import abc
import copy
import functools
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, cast

import numpy as np

from official_bert.features import EncodedSet
from official_bert.io import errors, files
from official_bert.io.errors import InputError
from official_bert.tasks.clients import Client, ServedModel, TextClient
from official_bert.tasks.settings import TaskSettings
from official_bert.tokenization import FullTokenizer

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from official_bert.config import BertConfig
    from official_bert.graph_text.text_reader import InputBuilder, TextReader
    from official_bert.modeling.layers import Tensor

ORIGINAL_BUFFER_SIZE = 100  # the size of the original's shuffle buffer, in examples

_TEXT_OR_PAIR = ([[None]], [[None], [None]])  # shapes of the inputs that the default client serves


class DataFiles(NamedTuple):
    """The location of a run's files: a folder in which the task knows the file names, or a path for
    each file.

    Attributes:
        data_dir: the folder; None if each file has a path of its own.
        named: set (train, dev, test) -> path of its file, in pre-training a list, or its rows in
            memory; None or absent for the file in the folder.
    """

    data_dir: str | None = None
    named: Mapping[str, Any] = MappingProxyType({})

    def path(self, set_name: str, names: Sequence[str]) -> str:
        """Returns the path of a set's file: the one in `named`, or the first existing one of
        `names` in the folder.

        A single name is used even if the folder has no such file.

        Args:
            set_name: the set: train, dev or test.
            names: the names that the file may have in the folder, the preferred one first. They
                match in any case. Empty if the task knows none.

        Raises:
            InputError: the set has neither a path nor a folder, or the folder has none of several
                names.
        """
        if path := self.named.get(set_name):
            return path
        if not self.data_dir or not names:
            raise InputError(
                f"--{set_name}_file: must be given{', or --data_dir' if names else ''}"
            )
        existing = files.find_ignoring_case(self.data_dir, names)
        if not existing and len(names) > 1:
            raise InputError(
                f"{self.data_dir}: has neither {' nor '.join(names)}; check --data_dir"
            )
        if len(existing) > 1:
            errors.warn("%s is read, and %s, which is there, too, is not", *existing[:2])
        return existing[0] if existing else os.path.join(self.data_dir, names[0])


class FreeSignature(NamedTuple):
    """A signature of an export with inputs of its own.

    Attributes:
        inputs: the tensors that it reads, by name; each tf.TensorSpec has this name, too.
        answer: a function from these tensors by name to the outputs by name.
        request: the arrays of a small request by name, with which servers warm up.
    """

    inputs: Mapping[str, tf.TensorSpec]
    answer: Callable[[dict], dict]
    request: Mapping[str, np.ndarray]


class OptionalMembers:
    """What few tasks define; the defaults suit the others.

    Attributes:
        num_choices: number of texts or pairs of each example, whose features are [B, choices, S];
            None for tasks whose features are [B, S].
        predicts_without_model: whether `write_predictions` reads the outputs of other runs and gets
            none.
        learns_from_labels_alone: whether a training set whose labels are all equal teaches nothing;
            a plugin of the training sets it to False if the set has other targets.
    """

    num_choices: int | None = None
    predicts_without_model: bool = False
    learns_from_labels_alone: bool = True

    def further_signatures(
        self, model: keras.Model, reader: TextReader | None = None
    ) -> dict[str, Callable[[dict], dict]]:
        """Returns further signatures of an export, by name, as functions to a dict of [B, ...].

        Those of an export of tensors read the encoder's features and `masked_lm_positions`,
        int32[B, P]. Those of an export of text read texts, as `serving_text` does.

        Args:
            model: the model of `build_model`.
            reader: the TextReader of an export of text; None for an export of tensors.
        """
        return {}

    def feature_signatures(self, model: keras.Model) -> dict[str, Callable[[dict], dict]]:
        """Returns further signatures of an export of tensors that read the encoder's features.

        Args:
            model: the model of `build_model`.

        Returns:
            Functions from the features, int32[B, S], to a dict of [B, ...], by signature.
        """
        return {}

    def free_signatures(
        self, model: keras.Model, builder: InputBuilder
    ) -> dict[str, FreeSignature]:
        """Returns the signatures of an export, by name, whose inputs the task chooses.

        Args:
            model: the model of `build_model`.
            builder: makes encoder features of ids. For an export of text it is a TextReader, which
                also reads texts.
        """
        return {}

    def prepare_set(self, model: keras.Model, encoded: EncodedSet) -> EncodedSet:
        """Returns the set that batches are read from; by default the set itself.

        It is called in the scope of the run's strategy before a set is trained on, evaluated or
        predicted, and may be called again for the same set. A task whose model has untrained layers
        computes their outputs here, once for each example.

        Args:
            model: the model of `build_model`, which has loaded its weights.
            encoded: the set of `encode`. Metrics and predictions get this one.
        """
        return encoded

    def example_outputs(
        self, encoded: EncodedSet, outputs: dict[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Returns the outputs for the examples of a set.

        Metrics and predictions are made from them.

        Args:
            encoded: the set.
            outputs: the outputs of the model for every row, such as the windows of long texts.

        Returns:
            The outputs for every example, each [n, ...].
        """
        return outputs

    def batch_objective(self, model: keras.Model) -> Any:
        """Returns the objective of a training whose batches are of several data sets.

        It is a `ComparingObjective` of training/whole_batch.py; another one is refused.

        Args:
            model: the model that is trained.
        """
        return cast("TrainableTask", self).objective(model)

    def calibrate(self, encoded: EncodedSet, outputs: dict[str, np.ndarray]) -> None:
        """Fits what --calibrate fits; then `settings` has it, and probabilities follow it.

        Args:
            encoded: a set with labels.
            outputs: the outputs for its examples, each [n, ...], as `example_outputs` returns them.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method calibrate")

    def report(
        self, output_dir: str, encoded: EncodedSet, outputs: dict[str, np.ndarray], suffix: str = ""
    ) -> None:
        """Logs and writes what an evaluation shows beside the metrics, such as a confusion matrix.

        Args:
            output_dir: the folder for the files.
            encoded: a set with labels.
            outputs: the outputs for all its examples, each [n, ...], in its order.
            suffix: the suffix of the set, which goes into the names of the files.
        """

    def describe_predictions(
        self, encoded: EncodedSet, outputs: dict[str, np.ndarray]
    ) -> Iterable[dict[str, Any]]:
        """Returns a JSON object for each example of an evaluated set, for reports.

        Reports know these fields:
        - `label` and `prediction`: texts, lists of texts for several labels, or numbers for scores.
          A label that the model cannot predict is None.
        - `probability` of the prediction, and `raw_probability` before a calibration; with several
          labels `probabilities` by label.
        - `text` and its number of `tokens`.
        - `line` of the text in its file, and `row_id`, its name there.
        - `words`: then label, prediction and the probabilities are lists with a value for each.
        - `x` and `y`: the place of the text on a map.

        Args:
            encoded: a set with labels.
            outputs: the outputs for all its examples, each [n, ...]; empty without examples.
        """
        return ()

    def settings(self) -> dict[str, Any]:
        """Returns the settings that an export records for its client, as JSON values by flag name.

        They are the values that the model was built with, after defaults and tuning.
        """
        return {}


class ServedTask(OptionalMembers, abc.ABC):
    """A task whose model can be exported: the methods that official-bert export_saved_model,
    Predictor and official-bert predict use.

    Attributes:
        labels: the labels in the order of the model's outputs; None if the task has none, or while
            they are unknown. A task may raise InputError instead while they are unknown.
        text_inputs: names of the strings of a request -> their shapes, such as [None] or [None,
            choices]; empty if the task has no export that reads text.
        settings_class: the class of the settings that `from_settings` and `client` get.
    """

    settings_class: ClassVar[type[TaskSettings]] = TaskSettings
    labels: Sequence[str] | None = None
    text_inputs: Mapping[str, Sequence[int | None]] = MappingProxyType({})

    @classmethod
    def from_settings(cls, variant: Any, settings: TaskSettings) -> Self:
        """Makes the task of a run or of an export.

        Args:
            variant: the entry of the registry's table that distinguishes this task from others of
                its class; None for `module:Class`.
            settings: an instance of `settings_class`. Its `values` also have the key
                `checkpoint_labels`: the labels of the checkpoint that a run starts from, None if
                they are unknown.

        Raises:
            InputError: the settings contradict each other.
        """
        return cls()

    def for_checkpoint(
        self, names: Collection[str], tokenizer: FullTokenizer, config: BertConfig
    ) -> ServedTask:
        """Returns the part of the task that a checkpoint can serve; by default the whole task.

        The checkpoint may lack a head, for example. A task can also look up here the ids of the
        special tokens that it serves.

        Args:
            names: the TF1 names of the variables of the checkpoint.
            tokenizer: the tokenizer of the model.
            config: its configuration.
        """
        return self

    @abc.abstractmethod
    def build_model(self, config: BertConfig, **arguments: Any) -> keras.Model:
        """Returns a Keras model with initial weights: model(features, training, dropout_seed) ->
        its outputs.

        The model may have the attribute of modeling/task_models.py, `unused_weights`. Layers with
        `trainable = False` are not trained.

        Args:
            config: the configuration of the model.
            **arguments: `use_one_hot_embeddings`, and with --recompute_layers also
                `recompute_layers`.
        """

    @abc.abstractmethod
    def serving_outputs(self, model: keras.Model, features: dict) -> dict:
        """Returns the outputs of an export of tensors: a dict of tensors [B, ...], which may
        contain strings.

        Args:
            model: the model of `build_model`.
            features: the three encoder features, int32[B, S] each, without labels.
        """

    def serving_text(self, model: keras.Model, texts: dict, reader: TextReader) -> dict:
        """Returns the outputs of an export of text: a dict of tensors [B, ...].

        Args:
            model: the model of `build_model`.
            texts: string tensors by name, as in `text_inputs`.
            reader: a TextReader of graph_text, which makes encoder features of the texts.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has text_inputs, but no method serving_text"
        )

    @classmethod
    def client(cls, model: ServedModel, settings: TaskSettings) -> Client:
        """Returns the client with which official-bert predict and Predictor send requests to an
        export of this task.

        The default client serves tasks whose `text_inputs` is an attribute of the class and names
        one text or two.

        Args:
            model: the export.
            settings: an instance of `settings_class`: the settings that the export has recorded,
                updated with the flags of official-bert predict and with `labels`.
        """
        inputs = cls.text_inputs
        if (
            not isinstance(inputs, Mapping)
            or [list(shape) for shape in inputs.values()] not in _TEXT_OR_PAIR
        ):
            raise InputError(
                f"{cls.__name__}: its text_inputs do not name one text or two, as the default "
                "client needs; give the class the method client of tasks/base.py"
            )
        return TextClient(model, tuple(inputs))


class TrainableTask(ServedTask):
    """A task that can be trained. One that is no `Task` is measured by the metrics of its
    objective.
    """

    @abc.abstractmethod
    def read(self, data_files: DataFiles, set_name: str) -> dict[str, Any]:
        """Reads the sets of a name, such as the development sets.

        Most tasks have one set, whose suffix is "". MNLI has two development sets, "" and "_mm", of
        which the second writes eval_results_mm.txt. Reading the training set may define the labels
        of the task. Test sets are read without labels.

        Args:
            data_files: the location of the files.
            set_name: train, dev or test.

        Returns:
            The examples of each set by the suffix of its result files.
        """

    @abc.abstractmethod
    def encode(
        self, examples: Any, tokenizer: FullTokenizer, max_seq_length: int, set_name: str
    ) -> EncodedSet:
        """Encodes a set for the model; each example is tokenized once.

        Beside `lengths` and `features`, the result may have what the original's sets have:
        - `counts`: numbers for the log by a prefix that ends in a blank; the first is the length of
          an epoch.
        - `shuffle_buffer_size`: the size of the buffer from which training examples are drawn; 0,
          the default, shuffles the whole set for each epoch.
        - `record_stem`: the name without suffixes of the record file that a run writes of the set;
          None, the default, for none. The records are those of `record(rows, length)`, or else of
          `features`.
        - `example_order(seed, batch_size, buffer_size)`: an endless iterator of the indices of the
          training examples, for a set that decides itself which examples share a batch.
        - `has_several_shapes`: whether the features of batches differ in shape beside the length.

        Args:
            examples: the examples of one set from `read`.
            tokenizer: the tokenizer of the model.
            max_seq_length: the maximum number of tokens in an example, special tokens included.
            set_name: train, dev or test.
        """

    @abc.abstractmethod
    def objective(self, model: keras.Model) -> Any:
        """Returns the objective of the training, an `Objective` of training/step.py; see
        `TaskObjective`.

        Args:
            model: the model that is trained.
        """


class Task(TrainableTask):
    """A task that can be fine-tuned and predicts examples.

    Attributes:
        main_metric: key of `metrics` by which checkpoints and runs are compared; higher is better.
    """

    main_metric: str

    @abc.abstractmethod
    def outputs(self, model: keras.Model, features: dict) -> dict:
        """Returns the outputs that an evaluation or a prediction keeps of each example: a dict of
        [B, ...].

        Evaluations report the mean of `loss`, float32[B], weighted by `loss_weight`, float32[B], if
        they are there.

        Args:
            model: the model of `build_model`.
            features: the features of a batch, with labels if the set has them.
        """

    @abc.abstractmethod
    def metrics(self, encoded: EncodedSet, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """Computes the official metrics of a set.

        Args:
            encoded: the set, which has labels.
            outputs: the outputs for all its examples, each [n, ...], in its order.

        Returns:
            The metrics by name; `main_metric` is one of the names.
        """

    @abc.abstractmethod
    def write_predictions(
        self, output_dir: str, encoded: EncodedSet, outputs: dict[str, np.ndarray], suffix: str = ""
    ) -> dict[str, float] | None:
        """Writes the prediction files of a test set.

        Args:
            output_dir: the folder for the files.
            encoded: the set.
            outputs: the outputs for all its examples, each [n, ...], in its order; empty if
                `predicts_without_model`.
            suffix: the suffix of the set, which goes into the names of the files.

        Returns:
            The metrics of a set whose file has the true answers, None for other sets.
        """


class TaskObjective:
    """The weighted mean of losses over a whole update, of which each replica computes its share.

    Attributes:
        reads_padding: whether the length to which a training batch is padded changes the loss.
    """

    sum_names = ("loss", "weighted_loss", "weight")
    tensorboard_only = ()
    reads_padding = False

    def __init__(self, model: keras.Model, losses: Callable, weights: Callable):
        """Combines a model with a task's losses, (model, features) -> float32[N], and weights,
        features -> float32[N].

        Each loss is that of an example or a token; calls of the `model` that `losses` gets apply
        dropout in training.
        """
        self.model, self._losses, self._weights = model, losses, weights

    def with_losses(self, change: Callable) -> Self:
        """Returns the objective with other losses, weighted as before.

        Args:
            change: gets the losses of this objective, (model, features) -> float32[N], and returns
                the others in the same form.
        """
        changed = copy.copy(self)
        changed._losses = change(self._losses)
        changed.constant_losses = lambda encoded: None  # unknown
        return changed

    def totals(self, features: dict) -> dict:
        """Returns the sum of the weights, the denominator of the loss.

        Args:
            features: the features of this replica's examples.
        """
        from keras import ops

        return {"weight": ops.sum(self._weights(features))}

    def loss(self, features: dict, totals: dict, dropout_seed: Tensor | None) -> tuple:
        """Returns this replica's share of the loss, float32[], and the sums for the progress line.

        Args:
            features: the features of this replica's examples.
            totals: the values of the method `totals`, summed over the replicas.
            dropout_seed: int32[2]; None for no dropout.
        """
        from keras import ops

        model = functools.partial(
            self.model, training=dropout_seed is not None, dropout_seed=dropout_seed
        )
        weights = self._weights(features)
        weighted = ops.sum(self._losses(model, features) * weights)
        loss = weighted / totals["weight"]
        return loss, {"loss": loss, "weighted_loss": weighted, "weight": ops.sum(weights)}

    def progress(self, sums: dict[str, float], num_steps: int) -> dict[str, float]:
        """Returns the mean loss of several steps.

        Args:
            sums: the sums of these steps, by name.
            num_steps: the number of these steps.
        """
        return {"loss": sums["loss"] / num_steps}

    def constant_losses(self, encoded: EncodedSet) -> np.ndarray | None:
        """Returns the loss that the best constant output has on each example of a training set,
        float[n].

        A model that learns has a smaller mean loss; None if the objective does not know it.

        Args:
            encoded: the training set.
        """
        return None
