"""What --data_sets changes in a fine-tuning: its task reads several sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from official_bert import catalog
from official_bert.config import BertConfig
from official_bert.extensions.mixtures.declarations import FILE_FLAGS, read_data_sets
from official_bert.extensions.mixtures.options import MixtureOptions
from official_bert.extensions.mixtures.task import MixedTask
from official_bert.fine_tuning.plugin import TrainingPlugin, TrainingRun
from official_bert.io.errors import InputError
from official_bert.options.fields import format_flag
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.tasks.base import Task
from official_bert.training import starting_point

_SINGLE_SET_QUERY_ENCODERS = ("idf", "lookup")  # of run_sparse_embeddings


class MixturePlugin(TrainingPlugin):
    """Replaces the task of a run by one on several data sets, if --data_sets is given."""

    def __init__(self, options: FineTuningOptions, config: BertConfig, task: Task):
        """Reads the data sets.

        Args:
            options: the flags of the run.
            config: the configuration of the model.
            task: the task of the command.

        Raises:
            InputError: the data sets, or the flags beside them, cannot be used.
        """
        self._flags = catalog.options_part(options, MixtureOptions)
        self._batch_size = options.train_batch_size
        self._data_sets: dict[str, dict[str, Any]] = {}
        if not self._flags.data_sets:
            return
        for name in (*FILE_FLAGS, "data_dir"):
            if value := getattr(options, name, None):
                raise InputError(
                    f"{format_flag(name, value)}: --data_sets names the files; write it there"
                )
        for name in ("use_tpu", "jit_compile"):
            if getattr(options, name):
                raise InputError(
                    f"--{name}: XLA compiles a step for one shape, and the batches of --data_sets "
                    "have several; leave it out"
                )
        query_encoder = getattr(options, "query_encoder", None)
        if options.do_train and query_encoder in _SINGLE_SET_QUERY_ENCODERS:
            raise InputError(
                f"--query_encoder={query_encoder}: counts the words of one training set; train "
                "with --query_encoder=model, or without --data_sets"
            )
        self._data_sets = read_data_sets(self._flags.data_sets, options)

    def wrap_task(self, task: Task, make_task: Callable[[Mapping[str, Any]], Task]) -> Task:
        """Returns the task of the run; with --data_sets one that reads them.

        Args:
            task: the task of the command.
            make_task: makes a task with other values of flags.
        """
        if not self._data_sets:
            return task
        members = {name: make_task(changes) for name, changes in self._data_sets.items()}
        set_files = {
            "train": self._list_files("train_file"),
            "dev": self._list_files("dev_file"),
        }
        main_set = self._flags.main_set or next(iter(set_files["dev"]), None)
        if main_set is None:
            main_set = next(iter(members))
        elif main_set not in set_files["dev"]:
            names = ", ".join(set_files["dev"]) or "none"
            raise InputError(
                f"--main_set={main_set}: must be a table of --data_sets with a dev_file: {names}"
            )
        return MixedTask(
            members=members,
            set_files=set_files,
            main_set=main_set,
            sampling=self._flags.set_sampling,
            batch_size=self._batch_size,
        )

    def _list_files(self, flag: str) -> dict[str, str]:
        """Returns the values of a flag by the name of the set, of the sets that have one."""
        return {name: changes[flag] for name, changes in self._data_sets.items() if flag in changes}

    def prepare(self, run: TrainingRun) -> Mapping[str, object]:
        """Returns the data sets for run.jsonl; refuses to resume with others.

        Args:
            run: the training.

        Raises:
            InputError: the training in the folder has other data sets.
        """
        if not self._data_sets:
            return {}
        assert self._flags.data_sets is not None  # They were read.
        source = self._flags.data_sets
        name = source if isinstance(source, str) else "data_sets"
        return starting_point.refuse_other_data_sets(run.options.output_dir, name, self._data_sets)
