"""The contract of a task over its whole life. Nothing outside a task's own folder, or file, knows more of it than this.

    files of a set --read--> examples --encode--> EncodedSet          what training, evaluation and prediction read
    build_model, losses, weights, outputs, metrics                    what they compute
    write_predictions                                                 the files that a prediction leaves
    serving_outputs, serving_text, settings                           what an export answers, and what it records
    client                                                            how predict.py and Predictor ask an export

A task that fine_tune trains is a `Task`; one that is exported only, such as a pre-trained model, is a `ServedTask`.
docs/adding_a_task.md makes a task outside this package.
"""

from __future__ import annotations

import abc
import functools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from official_bert import files
from official_bert.errors import InputError
from official_bert.features import EncodedSet
from official_bert.tasks.clients import Client, ServedModel, TextClient
from official_bert.tokenization import FullTokenizer

if TYPE_CHECKING:
    from official_bert.config import BertConfig

ORIGINAL_BUFFER_SIZE = 100  # examples that the original holds back while it draws the training order
LABELS_FILE = "labels.txt"  # beside a checkpoint, and in an export: the labels in the order of the outputs

# Values by the name of the flag that sets them: the flags of a script, or what an export has recorded. Beside them
# `checkpoint_labels` are the labels of the checkpoint that a run starts from, None if none are known.
Settings = Mapping[str, Any]


class DataFiles(NamedTuple):
    """Where the files of a run are: in a folder, in which the task knows their names, or each by its own name.

    Attributes:
        data_dir: the folder; None if the files have names of their own.
        named: set (train, dev, test) -> path of its file; None or absent for the file in the folder.
    """

    data_dir: str | None = None
    named: Mapping[str, str | None] = MappingProxyType({})

    def path(self, set_name: str, names: Sequence[str]) -> str:
        """Path of a set's file.

        Args:
            set_name: train, dev or test.
            names: that the file may have in the folder; the first that is there counts.

        Raises:
            InputError: neither a file nor a folder was given, or the folder has none of several names.
        """
        if given := self.named.get(set_name):
            return given
        if not self.data_dir:
            raise InputError(f"--{set_name}_file: must be given, or --data_dir")
        paths = [os.path.join(self.data_dir, name) for name in names]
        found = next(filter(files.exists, paths), None)
        if found is None and len(names) > 1:
            raise InputError(f"{self.data_dir}: has neither {' nor '.join(names)}; check --data_dir")
        return found or paths[0]


class ServedTask(abc.ABC):
    """A model that can be exported: what export_saved_model.py, Predictor and predict.py ask of a task.

    Attributes:
        labels: in the order of the model's outputs; None where there are none, or as long as they are not known.
        num_choices: texts or pairs of an example, whose features are [B, choices, S]; None where they are [B, S].
        unused_weights: name prefixes of the weights that no output reads; they receive no gradient.
        text_inputs: names of the strings of a request -> their shapes, such as [None] or [None, choices]; empty if the
            task cannot be exported as a model that reads text.
    """

    labels: Sequence[str] | None = None
    num_choices: int | None = None
    unused_weights: Sequence[str] = ()
    text_inputs: Mapping[str, Sequence[int | None]] = MappingProxyType({})

    @classmethod
    def from_settings(cls, variant: Any, settings: Settings) -> Self:
        """The task of a run or of an export.

        Args:
            variant: what tells this task from others of its class, from the registry's table; None for `module:Class`.
            settings: the flags of the script, by name; those that a script does not have are absent.

        Raises:
            InputError: settings that do not go together.
        """
        return cls()

    def for_checkpoint(
        self, names: Collection[str], tokenizer: FullTokenizer, config: BertConfig
    ) -> ServedTask:
        """The task as far as a checkpoint can be exported.

        Args:
            names: TF1 names of the checkpoint's variables.
            tokenizer: with the vocabulary.
            config: of the encoder.
        """
        return self

    @abc.abstractmethod
    def build_model(self, config: BertConfig, use_one_hot_embeddings: bool):
        """A Keras model with fresh weights: model(features, training, dropout_seed) -> its outputs."""

    @abc.abstractmethod
    def serving_outputs(self, model, features: dict) -> dict:
        """What a server answers to tensors: a dict of tensors [B, ...], strings among them.

        Args:
            model: of the task.
            features: the encoder's three, int32[B, S] each, and no labels.
        """

    def position_signatures(self, model) -> dict[str, Callable[[dict], dict]]:
        """Further signatures of an export of tensors, by name, which also read `masked_lm_positions`, int32[B, P].

        Each is a function of the encoder's features and the positions to a dict of [B, ...].
        """
        return {}

    def serving_text(self, model, texts: dict, reader) -> dict:
        """What a server answers to text: a dict of tensors [B, ...].

        Args:
            model: of the task.
            texts: string tensors by name, as in `text_inputs`.
            reader: a data.text.graph_inputs.TextReader.
        """
        raise NotImplementedError(f"{type(self).__name__} has text_inputs, but no method serving_text")

    def text_signatures(self, model, reader) -> dict[str, Callable[[dict], dict]]:
        """Further signatures of an export that reads text, by name: functions of `texts` as in `serving_text`."""
        return {}

    def settings(self) -> dict[str, Any]:
        """What an export records for the client: JSON values by flag, resolved to what the model was made with."""
        return {}

    @classmethod
    def client(cls, model: ServedModel, settings: Settings) -> Client:
        """How predict.py and Predictor ask an export of this task.

        Args:
            model: the export.
            settings: what the export has recorded, and over it the flags of predict.py; `labels` among them.

        Raises:
            InputError: settings that the export cannot be asked with.
        """
        return TextClient(model, tuple(cls.text_inputs))


class Task(ServedTask):
    """A task that can be fine-tuned.

    Attributes:
        main_metric: key of `metrics` by which checkpoints and runs are compared; higher is better.
        shuffle_buffer_size: examples that are held back while the training order is drawn; 0 shuffles the whole set for
            each epoch. ORIGINAL_BUFFER_SIZE for the original's tasks.
        loss_reads_padding: whether the length that a training batch is padded to changes the loss.
        record_files: set -> the stem of the record file that a run leaves of it, as the original's scripts did.
    """

    main_metric: str
    shuffle_buffer_size: int = 0
    loss_reads_padding: ClassVar[bool] = False
    record_files: ClassVar[Mapping[str, str]] = {}

    @abc.abstractmethod
    def read(self, data_files: DataFiles, set_name: str) -> dict[str, Any]:
        """The examples of train, dev or test: every set of that name by the suffix of its result files, "" the first.

        Reading the training set may teach the task its labels. Test sets are read without labels.

        Args:
            data_files: of the run.
            set_name: train, dev or test.

        Raises:
            InputError: a file that is missing, or in which something is wrong.
        """

    @abc.abstractmethod
    def encode(
        self, examples: Any, tokenizer: FullTokenizer, max_seq_length: int, set_name: str
    ) -> EncodedSet:
        """A set from `read` as the model reads it; each example is tokenized once.

        Raises:
            InputError: an example that cannot be encoded, with an unknown label, for example.
        """

    def counts(self, examples: Any, encoded: EncodedSet) -> dict[str, int]:
        """How large a training set is, by kind of example as the log names it; epochs are counted in the first."""
        return {"": len(encoded.lengths)}

    def record(self, encoded: EncodedSet, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """The features of some examples as a record file has them."""
        return encoded.features(rows, length)

    @abc.abstractmethod
    def losses(self, model, features: dict):
        """The loss of each example or token, float32[N]; the calls of `model` have dropout in training."""

    @abc.abstractmethod
    def weights(self, features: dict):
        """How much each of those losses counts, float32[N]; known before the model runs."""

    @abc.abstractmethod
    def outputs(self, model, features: dict) -> dict:
        """What an evaluation or prediction keeps of each example: a dict of [B, ...].

        With `loss`, float32[B], among them, evaluations report the mean loss; where examples do not count alike, their
        weights are `loss_weight`, float32[B].
        """

    @abc.abstractmethod
    def metrics(self, encoded: EncodedSet, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """The official metrics of a set from the outputs of all its examples, in its order."""

    @abc.abstractmethod
    def write_predictions(
        self, output_dir: str, encoded: EncodedSet, outputs: dict[str, np.ndarray], suffix: str = ""
    ) -> dict[str, float] | None:
        """Writes the prediction files of a test set.

        Args:
            output_dir: of the run.
            encoded: the set.
            outputs: of all its examples, in its order.
            suffix: of the set, for the names of the files.

        Returns:
            The metrics of a test set whose file has the true answers; None for others.

        Raises:
            InputError: a file that cannot be written.
        """


class TaskObjective:
    """The weighted mean of a task's losses over a whole update, on every replica's share of it."""

    sum_names = ("loss", "weighted_loss", "weight")

    def __init__(self, task: Task, model):
        self.task, self.model = task, model

    def totals(self, features: dict) -> dict:
        """The weights that the loss divides by."""
        from keras import ops

        return {"weight": ops.sum(self.task.weights(features))}

    def loss(self, features: dict, totals: dict, dropout_seed) -> tuple:
        """This replica's share of the loss, float32[], and sums for the progress line."""
        from keras import ops

        model = functools.partial(self.model, training=dropout_seed is not None, dropout_seed=dropout_seed)
        weights = self.task.weights(features)
        weighted = ops.sum(self.task.losses(model, features) * weights)
        loss = weighted / totals["weight"]
        return loss, {"loss": loss, "weighted_loss": weighted, "weight": ops.sum(weights)}

    def progress(self, sums: dict[str, float], num_steps: int) -> dict[str, float]:
        """The mean loss of some steps."""
        return {"loss": sums["loss"] / num_steps}
