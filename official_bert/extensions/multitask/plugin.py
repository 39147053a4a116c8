"""What a joint training does beside others: it writes a folder for each task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from official_bert import model_dir
from official_bert.config import BertConfig
from official_bert.extensions.multitask.folders import task_folder, write_weights
from official_bert.extensions.multitask.joint_set import JointEvaluationSet
from official_bert.extensions.multitask.task import MultitaskTask
from official_bert.fine_tuning.plugin import Evaluation, TrainingPlugin, TrainingRun
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.tasks import registry
from official_bert.tasks.base import Task
from official_bert.tokenizer_config import TokenizerConfig
from official_bert.training import reporting, starting_point
from official_bert.training.trainer import Trainer


class MultitaskPlugin(TrainingPlugin):
    """Writes the folders of the tasks; it does nothing in other trainings."""

    def __init__(self, options: FineTuningOptions, config: BertConfig, task: Task):
        """Reads the flags of the run.

        Args:
            options: the flags.
            config: the configuration of the model.
            task: the task of the command.

        Raises:
            InputError: a flag does not go with several tasks.
        """
        self._options: Any = options
        self._config = config
        self._task = task if isinstance(task, MultitaskTask) else None
        if self._task is None:
            return
        for name in ("use_tpu", "jit_compile"):
            if getattr(options, name):
                raise InputError(
                    f"--{name}: XLA compiles a step for one shape, and the batches of --data_sets "
                    "have several; leave it out"
                )

    def prepare(self, run: TrainingRun) -> Mapping[str, object]:
        """Returns the tables for run.jsonl; refuses to resume with others.

        Args:
            run: the training.

        Raises:
            InputError: the training in the folder has other tables.
        """
        if self._task is None:
            return {}
        data_sets = {name: dict(one.values) for name, one in self._task.declarations.items()}
        return starting_point.refuse_other_data_sets(
            run.options.output_dir, self._options.data_sets, data_sets
        )

    def check_weights(self, trainer: Trainer) -> None:
        """Refuses losses that compare the examples of a batch, if a batch has several parts.

        Args:
            trainer: the trainer of the joint model.

        Raises:
            InputError: a task has such a loss.
        """
        options = self._options
        is_split = trainer.strategy.num_replicas_in_sync > 1 or options.num_accumulation_steps > 1
        if self._task is None or not (options.do_train and is_split):
            return
        for name in self._task.objective(trainer.model).comparing_tasks:
            raise InputError(
                f"{options.data_sets}: [{name}] has a loss that compares the examples of a batch; "
                "train on one device without --num_accumulation_steps, or give the task another "
                "loss, such as cosine_similarity"
            )

    def read_evaluation(self, evaluation: Evaluation) -> None:
        """Writes the metrics of each task into its folder.

        Args:
            evaluation: the development sets, or the test sets.
        """
        if self._task is None:
            return
        assert isinstance(evaluation.encoded, JointEvaluationSet)
        for name, member in evaluation.encoded.members.items():
            prefix = f"eval_{name}_"
            results = {
                f"eval_{metric.removeprefix(prefix)}": value
                for metric, value in evaluation.results.items()
                if metric.startswith(prefix)
            }
            if results:
                folder = task_folder(evaluation.output_dir, member.task_name)
                files.make_folder(folder)
                suffix = name.removeprefix(member.task_name)
                reporting.write_eval_results(folder, results, evaluation.step, suffix)

    def end(self, output_dir: str) -> None:
        """Writes the model of each task, after a training.

        Args:
            output_dir: the folder of the run.
        """
        if self._task is None or not self._options.do_train:
            return
        options = self._options
        tokenizer_config = TokenizerConfig(
            options.do_lower_case, options.strip_accents, self._config.max_position_embeddings
        )
        for name, declaration in self._task.declarations.items():
            task, entry = declaration.task, declaration.entry
            settings = {"max_seq_length": options.max_seq_length} | task.settings()
            record = model_dir.TaskRecord(
                registry.canonical_name(entry.name), entry.family, settings
            )
            folder = task_folder(output_dir, name)
            model_dir.write(
                folder, self._config, options.vocab_file, tokenizer_config, record, task.labels
            )
            write_weights(output_dir, name, self._config)
