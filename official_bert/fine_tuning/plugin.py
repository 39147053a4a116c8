"""What an extension can change in a training: the base class of the plugins of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from official_bert import catalog
from official_bert.config import BertConfig
from official_bert.features import EncodedSet
from official_bert.tasks.base import Task, TrainableTask
from official_bert.tokenization import FullTokenizer
from official_bert.training.plan import WeightPlan
from official_bert.training.step import Objective

if TYPE_CHECKING:
    from official_bert.options.training import TrainingOptions
    from official_bert.training.trainer import Trainer


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """A training that is about to begin.

    Attributes:
        options: the flags; `output_dir` is the folder that this process writes to.
        config: the configuration of the model.
        task: the task, which has read its training set.
        strategy: the devices.
        training_set: the encoded training set; in pre-training its record files.
        make_tokenizer: makes the tokenizer of the training set; None is returned where nothing
            says which it is.
    """

    options: TrainingOptions
    config: BertConfig
    task: TrainableTask
    strategy: tf.distribute.Strategy
    training_set: Any
    make_tokenizer: Callable[[], FullTokenizer | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A set with labels that a fine-tuning has evaluated.

    Attributes:
        output_dir: the folder that this process writes to.
        task: the task.
        encoded: the set.
        outputs: the outputs for all its examples, each [n, ...], as `Task.metrics` gets them.
        results: the metrics by name.
        suffix: the ending of the names of the set's result files, such as "_mm".
        step: the number of updates that the model has had.
    """

    output_dir: str
    task: Task
    encoded: EncodedSet
    outputs: Mapping[str, np.ndarray]
    results: Mapping[str, float]
    suffix: str
    step: int


class TrainingPlugin:
    """What an extension changes in a run; a method that is not overridden changes nothing.

    An extension names its class for the hooks `fine_tuning` and `pretraining`. The core makes an
    object of it for each run, before any set is read, and calls its methods in the order in which
    they stand here. A run that only evaluates or predicts calls `wrap_task`, `splits_training_set`,
    `split_training_set`, `adapt_model`, `weight_plan`, `check_weights`, `add_predictions`,
    `read_evaluation` and `end`. A search makes an object of its own and calls `end_search` only.

    Attributes:
        output_files: patterns of the names of the files that the plugin writes into output_dir.
        splits_training_set: whether `split_training_set` is called. The dev set then is its second
            part.
    """

    output_files: ClassVar[tuple[str, ...]] = ()
    splits_training_set = False

    def __init__(self, options: TrainingOptions, config: BertConfig, task: TrainableTask):
        """Reads the flags of the extension, by `catalog.options_part`.

        Args:
            options: the flags of the run.
            config: the configuration of the model.
            task: the task, which has read nothing yet.

        Raises:
            InputError: the flags do not fit each other, the model or the task.
        """

    def wrap_task(self, task: Task, make_task: Callable[[Mapping[str, Any]], Task]) -> Task:
        """Returns the task of a fine-tuning, perhaps one that reads other sets.

        Args:
            task: the task, which has read nothing yet, perhaps already wrapped by another plugin.
            make_task: makes a task of the run with other values of flags, which it gets by name.
        """
        return task

    def split_training_set(self, examples: Any) -> tuple[Any, Any]:
        """Returns the parts of the training set to train on and to evaluate on.

        Args:
            examples: the examples, as the method `read` of the task returns them.

        Raises:
            InputError: the set has too few examples.
        """
        raise NotImplementedError(f"{type(self).__name__} splits no training set")

    def prepare(self, run: TrainingRun) -> Mapping[str, object]:
        """Computes what the training needs; returns further values of its line in run.jsonl.

        Args:
            run: the training, whose model is not built yet.
        """
        return {}

    def weight_plan(self) -> WeightPlan:
        """Returns which weights are trained, and how."""
        return WeightPlan()

    def adapt_model(self, model: keras.Model) -> keras.Model:
        """Returns the model, perhaps changed.

        Args:
            model: the model of the task. It has initial weights and loads others next.
        """
        return model

    def check_weights(self, trainer: Trainer) -> None:
        """Checks that the model can be trained from the weights that were loaded.

        Args:
            trainer: the trainer, whose model has loaded its weights.

        Raises:
            InputError: the model cannot be trained from them.
        """

    def wrap_training_set(self, encoded: EncodedSet) -> EncodedSet:
        """Returns the set that a fine-tuning reads its batches from.

        Args:
            encoded: the training set, perhaps already wrapped by another plugin.
        """
        return encoded

    def wrap_objective(self, objective: Objective) -> Objective:
        """Returns the objective of the training.

        Args:
            objective: the objective of the task, perhaps already wrapped by another plugin.
        """
        return objective

    def finish(self, trainer: Trainer) -> None:
        """Is called after the training.

        Args:
            trainer: the trainer, whose model has the weights that are used.
        """

    def add_predictions(
        self, output_dir: str, outputs: Mapping[str, np.ndarray], suffix: str
    ) -> None:
        """Is called when --do_predict has written the predictions of a test set.

        Args:
            output_dir: the folder of the prediction files.
            outputs: the outputs of the task for all examples of the set, each [n, ...].
            suffix: the ending of the names of the files, such as "_mm".
        """

    def read_evaluation(self, evaluation: Evaluation) -> None:
        """Is called after a set was evaluated, or predicted and scored, and its files are written.

        Evaluations during training are left out, and so are those of pre-training.

        Args:
            evaluation: the set, its outputs and its metrics.
        """

    def end(self, output_dir: str) -> None:
        """Is called at the end of a run, in the process that writes the results.

        Args:
            output_dir: the folder of the run, which has all files of the run.
        """

    def end_search(self, output_dir: str) -> None:
        """Is called at the end of a search.

        Args:
            output_dir: the folder of the search, which has a folder for each run.
        """


class CombinedPlugin(TrainingPlugin):
    """All plugins of a run as one, in the order of the extensions."""

    def __init__(self, plugins: Sequence[TrainingPlugin]):
        self._plugins = plugins
        self.splits_training_set = any(plugin.splits_training_set for plugin in plugins)

    def wrap_task(self, task: Task, make_task: Callable[[Mapping[str, Any]], Task]) -> Task:
        for plugin in self._plugins:
            task = plugin.wrap_task(task, make_task)
        return task

    def split_training_set(self, examples: Any) -> tuple[Any, Any]:
        for plugin in self._plugins:
            if plugin.splits_training_set:
                return plugin.split_training_set(examples)
        return super().split_training_set(examples)

    def prepare(self, run: TrainingRun) -> Mapping[str, object]:
        metadata: dict[str, object] = {}
        for plugin in self._plugins:
            metadata.update(plugin.prepare(run))
        return metadata

    def weight_plan(self) -> WeightPlan:
        plan = WeightPlan()
        for plugin in self._plugins:
            plan = plan.combine(plugin.weight_plan())
        return plan

    def adapt_model(self, model: keras.Model) -> keras.Model:
        for plugin in self._plugins:
            model = plugin.adapt_model(model)
        return model

    def check_weights(self, trainer: Trainer) -> None:
        for plugin in self._plugins:
            plugin.check_weights(trainer)

    def wrap_training_set(self, encoded: EncodedSet) -> EncodedSet:
        for plugin in self._plugins:
            encoded = plugin.wrap_training_set(encoded)
        return encoded

    def wrap_objective(self, objective: Objective) -> Objective:
        for plugin in self._plugins:
            objective = plugin.wrap_objective(objective)
        return objective

    def finish(self, trainer: Trainer) -> None:
        for plugin in self._plugins:
            plugin.finish(trainer)

    def add_predictions(
        self, output_dir: str, outputs: Mapping[str, np.ndarray], suffix: str
    ) -> None:
        for plugin in self._plugins:
            plugin.add_predictions(output_dir, outputs, suffix)

    def read_evaluation(self, evaluation: Evaluation) -> None:
        for plugin in self._plugins:
            plugin.read_evaluation(evaluation)

    def end(self, output_dir: str) -> None:
        for plugin in self._plugins:
            plugin.end(output_dir)

    def end_search(self, output_dir: str) -> None:
        for plugin in self._plugins:
            plugin.end_search(output_dir)


def make_plugin(
    hook: str, options: TrainingOptions, config: BertConfig, task: TrainableTask
) -> TrainingPlugin:
    """Makes the plugins of a run, as one.

    Args:
        hook: "fine_tuning" or "pretraining".
        options: the flags of the run.
        config: the configuration of the model.
        task: the task of the run.
    """
    plugin_classes = catalog.hooks(hook)
    return CombinedPlugin([make(options, config, task) for make in plugin_classes])


def output_files() -> list[str]:
    """Returns the patterns of the files that plugins write into the folder of a fine-tuning."""
    return [name for plugin in catalog.hooks("fine_tuning") for name in plugin.output_files]
