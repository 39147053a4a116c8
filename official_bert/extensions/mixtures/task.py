"""The task of a training on several data sets, with a loss and an evaluation for each."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from official_bert.config import BertConfig
from official_bert.extensions.mixtures.mixed_set import SET_NUMBER, MixedSet, MixedTrainingSet
from official_bert.features import EncodedSet
from official_bert.io.errors import InputError
from official_bert.tasks.base import DataFiles, Task
from official_bert.tokenization import FullTokenizer
from official_bert.training.whole_batch import ComparingObjective

Arrays = Mapping[str, np.ndarray]


class MixedTask(Task):
    """A task on several data sets.

    Each set has a task, which reads, encodes and measures it. The task of the main set makes the
    model, and predicts a test set.
    """

    def __init__(
        self,
        members: Mapping[str, Task],
        set_files: Mapping[str, Mapping[str, str]],
        main_set: str,
        sampling: str,
        batch_size: int,
    ):
        """Makes the task.

        Args:
            members: the tasks of the data sets by name.
            set_files: for train and dev the files of the sets that have one, by name.
            main_set: the name of the set whose main metric decides.
            sampling: how many batches each set gives: a value of --set_sampling.
            batch_size: the number of examples in a training batch.
        """
        self._members = members
        self._set_files = set_files
        self._main_set = main_set
        self._task = members[main_set]
        self._sampling = sampling
        self._batch_size = batch_size

    @property
    def main_metric(self) -> str:
        return _name_metric(self._main_set, self._task.main_metric)

    def read(self, data_files: DataFiles, set_name: str) -> dict[str, Any]:
        if set_name not in self._set_files:
            return self._task.read(data_files, set_name)
        paths = self._set_files[set_name]
        if not paths:
            raise InputError(f"--data_sets: no table has a {set_name}_file; add it to one of them")
        loaded_sets = data_files.named.get(set_name) or {}
        examples = {}
        for name, path in paths.items():
            source = loaded_sets.get(name, path)
            examples[name] = self._members[name].read(DataFiles(named={set_name: source}), set_name)
        return {"": {name: sets[""] for name, sets in examples.items()}}

    def encode(
        self, examples: Any, tokenizer: FullTokenizer, max_seq_length: int, set_name: str
    ) -> EncodedSet:
        if set_name not in self._set_files:
            return self._task.encode(examples, tokenizer, max_seq_length, set_name)
        members = {}
        for name, set_examples in examples.items():
            task = self._members[name]
            members[name] = task.encode(set_examples, tokenizer, max_seq_length, set_name)
        if set_name == "train":
            return MixedTrainingSet(members, self._sampling, self._batch_size)
        return MixedSet(members)

    def build_model(self, config: BertConfig, **arguments: Any) -> keras.Model:
        return self._task.build_model(config, **arguments)

    def objective(self, model: keras.Model) -> MixedObjective:
        objectives = {}
        for name in self._set_files["train"]:
            objective = self._members[name].batch_objective(model)
            assert isinstance(objective, ComparingObjective)
            objectives[name] = objective
        return MixedObjective(list(objectives.values()))

    def outputs(self, model: keras.Model, features: dict) -> dict:
        return self._task.outputs(model, features)

    def metrics(self, encoded: MixedSet, outputs: Arrays) -> dict[str, float]:
        """Returns the metrics of all sets; eval_accuracy of a set x is called eval_x_accuracy."""
        results = {}
        for name, set_outputs in _split(encoded, outputs).items():
            metrics = self._members[name].metrics(encoded.members[name], set_outputs)
            results |= {_name_metric(name, metric): value for metric, value in metrics.items()}
        return results

    def describe_predictions(self, encoded: MixedSet, outputs: Arrays) -> Iterator[dict[str, Any]]:
        descriptions = []
        for name, set_outputs in _split(encoded, outputs).items():
            task = self._members[name]
            descriptions.append(task.describe_predictions(encoded.members[name], set_outputs))
        return itertools.chain(*descriptions)

    def write_predictions(
        self, output_dir: str, encoded: EncodedSet, outputs: dict[str, np.ndarray], suffix: str = ""
    ) -> dict[str, float] | None:
        return self._task.write_predictions(output_dir, encoded, outputs, suffix)

    def serving_outputs(self, model: keras.Model, features: dict) -> dict:
        return self._task.serving_outputs(model, features)

    def settings(self) -> dict[str, Any]:
        return self._task.settings()


class MixedObjective:
    """The loss of a batch is that of its data set; a `ComparingObjective` of training.

    Attributes:
        members: the objectives of the sets in the order of their numbers.
    """

    sum_names = ("loss",)
    tensorboard_only = ()

    def __init__(self, objectives: list[ComparingObjective]):
        """Makes the objective.

        Args:
            objectives: the objectives of the sets in the order of their numbers. All compute the
                same vectors.
        """
        self.members = objectives
        names = {name for objective in objectives for name in objective.compared}
        self.compared = (*sorted(names), SET_NUMBER)

    def vectors(self, features: dict, dropout_seed: tf.Tensor | None) -> tf.Tensor:
        """Returns the vectors of the texts of examples.

        Args:
            features: the features of the examples.
            dropout_seed: int32[2]; None for no dropout.
        """
        return self.members[0].vectors(features, dropout_seed)

    def batch_loss(self, vectors: tf.Tensor, features: dict) -> tf.Tensor:
        """Returns the loss of a batch, float32[].

        Args:
            vectors: the vectors of all examples.
            features: the features with the keys of `compared`.
        """
        branches = [
            functools.partial(objective.batch_loss, vectors, features) for objective in self.members
        ]
        return tf.switch_case(features[SET_NUMBER][0], branches)

    def progress(self, sums: dict[str, float], num_steps: int) -> dict[str, float]:
        """Returns the mean loss of several steps.

        Args:
            sums: the sums of the steps, by name.
            num_steps: the number of these steps.
        """
        return {"loss": sums["loss"] / num_steps}


def _split(encoded: MixedSet, outputs: Arrays) -> dict[str, dict[str, np.ndarray]]:
    """Returns the outputs of each set."""
    return {
        name: {key: values[place] for key, values in outputs.items()}
        for name, place in encoded.slices.items()
    }


def _name_metric(set_name: str, metric: str) -> str:
    """Returns the name of a metric of a set, such as eval_pairs_accuracy."""
    return f"eval_{set_name}_{metric.removeprefix('eval_')}"
