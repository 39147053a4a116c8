"""Every task of every script by its name, and tasks outside this package by `module:Class`.

No other file knows the names of tasks. The families' classes, which import Keras, are imported when a task is made.
"""

import importlib
from typing import Any, NamedTuple

from official_bert.errors import InputError
from official_bert.tasks.base import ServedTask, Settings
from official_bert.tasks.choice import examples as choice
from official_bert.tasks.classification import glue
from official_bert.tasks.classification.processor import DataProcessor
from official_bert.tasks.classification.tsv import TsvProcessor
from official_bert.tasks.classification.xnli import XnliProcessor

CLASSIFICATION = "classification"

_FAMILIES = {
    CLASSIFICATION: "official_bert.tasks.classification.task:ClassificationTask",
    "choice": "official_bert.tasks.choice.task:ChoiceTask",
    "tagging": "official_bert.tasks.tagging.task:TaggingTask",
    "squad": "official_bert.tasks.squad.task:SquadTask",
    "pretraining": "official_bert.tasks.pretraining.task:PretrainingTask",
}


class _Entry(NamedTuple):
    """A task in the table.

    Attributes:
        family: key of `_FAMILIES`.
        variant: what tells it from the family's other tasks; see ServedTask.from_settings.
    """

    family: str
    variant: Any = None


_TASKS = {
    **{name: _Entry(CLASSIFICATION, processor) for name, processor in glue.PROCESSORS.items()},
    "XNLI": _Entry(CLASSIFICATION, XnliProcessor),
    "tsv": _Entry(CLASSIFICATION, TsvProcessor),
    "swag": _Entry("choice", choice.SWAG),
    "codah": _Entry("choice", choice.CODAH),
    "ner": _Entry("tagging"),
    "squad": _Entry("squad"),
    "pretraining": _Entry("pretraining"),
}


def make_task(task_name: str, settings: Settings, family: str | None = None) -> ServedTask:
    """The task of a name.

    Args:
        task_name: as --task_name takes it: a name of the table, in which case, hyphens and underscores do not count, or
            `module:Class`, the module as in an import statement.
        settings: the flags of the script, by name.
        family: the only one whose names are accepted; `module:Class` may be of any.

    Raises:
        InputError: no such task, or settings that do not fit it.
    """
    if is_outside(task_name):
        entry = _outside_entry(task_name)
    else:
        entry = _found(task_name)
        if entry is None or family not in (None, entry.family):
            names = [name for name, one in _TASKS.items() if family in (None, one.family)]
            raise InputError(f"Task not found: {task_name}; it is one of {', '.join(names)}, or module:Class")
    return task_class(entry.family).from_settings(entry.variant, settings)


def family_of(task_name: str) -> str:
    """The family of a task, which `task_class` takes: for a task class outside this package its `module:Class`."""
    return (_outside_entry(task_name) if is_outside(task_name) else _found(task_name)).family


def task_class(family: str) -> type[ServedTask]:
    """The class of a family's tasks.

    Raises:
        InputError: a `module:Class` that cannot be loaded.
    """
    return load(_FAMILIES.get(family, family))


def canonical_name(task_name: str) -> str:
    """A task's name as exports record it: `module:Class` as it stands, other names in lower case."""
    return task_name if is_outside(task_name) else task_name.lower()


def is_outside(task_name: str) -> bool:
    """Whether a name is `module:Class`, a task that stands in no table here."""
    return ":" in task_name


def load(task_name: str) -> type:
    """The class that `module:Class` names.

    Raises:
        InputError: no such module or class, or one that is no task.
    """
    module_name, _, class_name = task_name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (ModuleNotFoundError, ValueError) as error:  # ValueError: an empty name
        absent = getattr(error, "name", None) or module_name
        if not f"{module_name}.".startswith(f"{absent}."):
            raise  # what the module imports is missing
        raise InputError(
            f"--task_name={task_name}: there is no module {module_name!r}; put its folder on PYTHONPATH"
        ) from error
    found, place = getattr(module, class_name, None), module.__spec__.origin or module_name
    if not isinstance(found, type):
        raise InputError(
            f"--task_name={task_name}: {place} defines no class {class_name!r}; correct the name"
        )
    if not issubclass(found, DataProcessor | ServedTask):
        raise InputError(
            f"--task_name={task_name}: is neither a DataProcessor nor a Task of official_bert/tasks/base.py; inherit "
            "from one of them"
        )
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise InputError(f"--task_name={task_name}: lacks {', '.join(missing)}; define what Task asks for")
    return found


def _outside_entry(task_name: str) -> _Entry:
    """A task class is a family of its own, a DataProcessor one more task of classification."""
    found = load(task_name)
    return _Entry(CLASSIFICATION, found) if issubclass(found, DataProcessor) else _Entry(task_name)


def _found(task_name: str) -> _Entry | None:
    wanted = _plain(task_name)
    return next((entry for name, entry in _TASKS.items() if _plain(name) == wanted), None)


def _plain(task_name: str) -> str:
    """A task's name without case, hyphens and underscores."""
    return task_name.lower().replace("-", "").replace("_", "")
