"""Tasks by name: those of run_classifier.py, and whatever a module outside this package defines."""

import importlib
from collections.abc import Callable

from official_bert.errors import InputError
from official_bert.options.classification import ClassificationOptions
from official_bert.tasks.base import Task
from official_bert.tasks.classification import glue
from official_bert.tasks.classification.processor import DataProcessor
from official_bert.tasks.classification.tsv import TsvProcessor
from official_bert.tasks.classification.xnli import XnliProcessor

ORIGINAL_TASKS = ("cola", "mnli", "mrpc", "xnli")


def _tsv(options: ClassificationOptions) -> DataProcessor:
    return TsvProcessor(
        options.text_a_column,
        options.text_b_column,
        options.label_column,
        has_header=options.has_header,
        labels=options.labels,
        is_multi_label=options.multi_label,
        label_separator=options.label_separator,
        is_regression=options.regression,
    )


# By name in lower case, without hyphens and underscores; GLUE's tasks stand in glue.py.
_PROCESSORS: dict[str, Callable[[ClassificationOptions], DataProcessor]] = {
    "xnli": lambda options: XnliProcessor(options.xnli_language),
    "tsv": _tsv,
}


def make_processor(options: ClassificationOptions) -> DataProcessor:
    """The processor of --task_name.

    Raises:
        InputError: no such task, or one that is no processor.
    """
    if is_outside(options.task_name):
        found = load(options.task_name)
        if not isinstance(found, DataProcessor):
            raise InputError(
                f"--task_name={options.task_name}: is no DataProcessor; run the task's own script"
            )
        return found
    name = glue.plain_name(options.task_name)
    if name in _PROCESSORS:
        return _PROCESSORS[name](options)
    found = glue.find(name)
    if found is None:
        raise InputError(
            f"Task not found: {options.task_name}; it is one of {', '.join((*glue.NAMES, *_PROCESSORS))}, or "
            "module:Class"
        )
    return found()


def is_outside(task_name: str) -> bool:
    """Whether a name is `module:Class`: a task that stands in no table here."""
    return ":" in task_name


def load(task_name: str) -> DataProcessor | Task:
    """What a class makes that is defined outside this package.

    Args:
        task_name: `module:Class`, the module as in an import statement; the class is called without arguments.

    Raises:
        InputError: no such module or class, or one whose objects are no tasks.
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
    made_by, place = getattr(module, class_name, None), module.__spec__.origin or module_name
    if not isinstance(made_by, type):
        raise InputError(
            f"--task_name={task_name}: {place} defines no class {class_name!r}; correct the name"
        )
    found = made_by()
    if not isinstance(found, DataProcessor | Task):
        raise InputError(
            f"--task_name={task_name}: is neither a DataProcessor nor has it all that tasks/base.py asks of a task"
        )
    return found
