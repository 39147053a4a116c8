"""The task of a joint training: the tasks of its tables, over one encoder."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from official_bert.extensions.multitask.declarations import Declaration, read_declarations
from official_bert.extensions.multitask.folders import task_folder
from official_bert.extensions.multitask.joint_set import (
    JointEvaluationSet,
    JointTrainingSet,
    Member,
    name_feature,
    select_features,
)
from official_bert.extensions.multitask.model import MultitaskModel
from official_bert.extensions.multitask.objective import MultitaskObjective
from official_bert.extensions.multitask.sampling import Sampling
from official_bert.features import ENCODER_INPUTS, EncodedSet
from official_bert.io.errors import InputError
from official_bert.modeling.layers import override_calls
from official_bert.serving.shared_encoder import SharedEncoder
from official_bert.tasks.base import DataFiles, Task

if TYPE_CHECKING:
    from official_bert.config import BertConfig
    from official_bert.tasks.settings import TaskSettings
    from official_bert.tokenization import FullTokenizer

Arrays = dict[str, np.ndarray]


class MultitaskTask(Task):
    """Several tasks over one encoder.

    The examples of a set are a mapping from the name of a set, such as `mnli_mm`, to the name of
    its task and its examples.

    Attributes:
        declarations: the tasks by the names of their tables.
    """

    def __init__(
        self,
        declarations: Mapping[str, Declaration],
        data_sets_file: str,
        main_set: str | None,
        sampling: Sampling,
    ):
        """Makes the task.

        Args:
            declarations: the tasks by the names of their tables.
            data_sets_file: the file of the tables.
            main_set: the development set whose main metric decides; None for the first one.
            sampling: how many batches each task gives.
        """
        self.declarations = declarations
        self._data_sets_file = data_sets_file
        self._main_set = main_set
        self._sampling = sampling
        # A set of each task, whose features show what its examples have.
        self._templates: dict[str, EncodedSet] = {}
        self._dev_tasks: dict[str, str] = {}  # the task of each development set

    @classmethod
    def from_settings(cls, variant: None, settings: TaskSettings) -> Self:
        """Makes the task of a run.

        Args:
            variant: not read.
            settings: the flags of run_multitask.

        Raises:
            InputError: a table cannot be used, or the settings are those of an export.
        """
        values = settings.values
        path = values.get("data_sets")
        if not path:
            folder = task_folder(values.get("output_dir") or "OUTPUT_DIR", "NAME")
            raise InputError(
                f"--model: is the folder of a joint training, which has the model of each task in "
                f"{folder}; give the folder of a task"
            )
        sampling = Sampling(
            kind=values["set_sampling"],
            exponent=values["sampling_exponent"],
            num_epochs=values["num_train_epochs"],
            buffer_size=values["shuffle_buffer_size"],
        )
        return cls(read_declarations(path, values), path, values["main_set"], sampling)

    @property
    def main_metric(self) -> str:
        if not self._dev_tasks:  # Without an evaluation no name is needed.
            name, declaration = next(iter(self.declarations.items()))
            return _name_metric(name, declaration.task.main_metric)
        main_set = self._main_set or next(iter(self._dev_tasks))
        task = self.declarations[self._dev_tasks[main_set]].task
        return _name_metric(main_set, task.main_metric)

    def read(self, data_files: DataFiles, set_name: str) -> dict[str, Any]:
        examples: dict[str, tuple[str, Any]] = {}
        for name, declaration in self.declarations.items():
            if not declaration.has_set(set_name):
                continue
            sets = declaration.task.read(declaration.data_files(), set_name)
            for suffix, set_examples in sets.items():
                examples[f"{name}{suffix}"] = (name, set_examples)
        if not examples:
            raise InputError(
                f"{self._data_sets_file}: no table has a {set_name}_file or a data_dir with such a "
                "file; add it to one of them"
            )
        if set_name == "dev":
            self._dev_tasks = {set_name: name for set_name, (name, _) in examples.items()}
            if self._main_set is not None and self._main_set not in self._dev_tasks:
                raise InputError(
                    f"--main_set={self._main_set}: is none of the development sets of "
                    f"{self._data_sets_file}; give one of {', '.join(self._dev_tasks)}"
                )
        return {"": examples}

    def encode(
        self, examples: Any, tokenizer: FullTokenizer, max_seq_length: int, set_name: str
    ) -> EncodedSet:
        members = {}
        for name, (task_name, set_examples) in examples.items():
            task = self.declarations[task_name].task
            encoded = task.encode(set_examples, tokenizer, max_seq_length, set_name)
            members[name] = Member(task_name, encoded)
            self._templates[task_name] = encoded
        if set_name == "train":
            return JointTrainingSet(members, self._sampling)
        return JointEvaluationSet(members, self._templates)

    def build_model(self, config: BertConfig, **arguments: Any) -> MultitaskModel:
        tasks = {name: declaration.task for name, declaration in self.declarations.items()}
        return MultitaskModel(config, tasks, **arguments)

    def objective(self, model: MultitaskModel) -> MultitaskObjective:
        return MultitaskObjective(
            {
                name: declaration.task.objective(model.heads[name])
                for name, declaration in self.declarations.items()
            }
        )

    def outputs(self, model: MultitaskModel, features: dict) -> dict:
        """Returns the outputs of all tasks for a batch, with one call of the encoder."""
        encoder_features = {name: features[name] for name in ENCODER_INPUTS}
        outputs = {}
        with override_calls(SharedEncoder([model.bert])):
            for name in self._templates:
                task_features = encoder_features | select_features(name, features)
                task = self.declarations[name].task
                for output, value in task.outputs(model.heads[name], task_features).items():
                    outputs[name_feature(name, output)] = value
        return outputs

    def example_outputs(self, encoded: JointEvaluationSet, outputs: Arrays) -> Arrays:
        """Returns the outputs of each set by its task, for the examples of the set."""
        joined = {}
        for set_name, rows in encoded.slices.items():
            member = encoded.members[set_name]
            row_outputs = {
                name: values[rows]
                for name, values in select_features(member.task_name, outputs).items()
            }
            task = self.declarations[member.task_name].task
            set_outputs = task.example_outputs(member.encoded, row_outputs)
            for name, values in set_outputs.items():
                joined[name_feature(set_name, name)] = values
        return joined

    def _split(
        self, encoded: JointEvaluationSet, outputs: Arrays
    ) -> Iterator[tuple[str, Task, EncodedSet, Arrays]]:
        """Yields the name of each set, its task, the set and its outputs."""
        for set_name, member in encoded.members.items():
            task = self.declarations[member.task_name].task
            yield set_name, task, member.encoded, select_features(set_name, outputs)

    def metrics(self, encoded: JointEvaluationSet, outputs: Arrays) -> dict[str, float]:
        """Returns the metrics of all sets; eval_accuracy of a set x is called eval_x_accuracy."""
        results = {}
        for name, task, one_set, set_outputs in self._split(encoded, outputs):
            for metric, value in task.metrics(one_set, set_outputs).items():
                results[_name_metric(name, metric)] = value
        return results

    def report(
        self, output_dir: str, encoded: JointEvaluationSet, outputs: Arrays, suffix: str = ""
    ) -> None:
        for name, task, one_set, set_outputs in self._split(encoded, outputs):
            task.report(output_dir, one_set, set_outputs, f"{suffix}_{name}")

    def describe_predictions(
        self, encoded: JointEvaluationSet, outputs: Arrays
    ) -> Iterator[dict[str, Any]]:
        return itertools.chain.from_iterable(
            task.describe_predictions(one_set, set_outputs)
            for _, task, one_set, set_outputs in self._split(encoded, outputs)
        )

    def write_predictions(
        self, output_dir: str, encoded: JointEvaluationSet, outputs: Arrays, suffix: str = ""
    ) -> dict[str, float] | None:
        results = {}
        for name, task, one_set, set_outputs in self._split(encoded, outputs):
            metrics = task.write_predictions(output_dir, one_set, set_outputs, f"{suffix}_{name}")
            for metric, value in (metrics or {}).items():
                results[_name_metric(name, metric)] = value
        return results or None

    def serving_outputs(self, model: MultitaskModel, features: dict) -> dict:
        raise NotImplementedError("the folder of each task is exported")


def _name_metric(set_name: str, metric: str) -> str:
    """Returns the name of a metric of a set, such as eval_rte_accuracy."""
    return f"eval_{set_name}_{metric.removeprefix('eval_')}"
