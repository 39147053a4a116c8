"""Finds every task of every script by its name, and tasks outside this package by `module:Class`.

The classes of the families import Keras, so a class is imported only when a task of its family is
made.
"""

import importlib
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from official_bert import catalog
from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import TRUNCATE
from official_bert.tasks.base import ServedTask
from official_bert.tasks.classification import glue
from official_bert.tasks.classification.processor import DataProcessor
from official_bert.tasks.classification.text import FILE_FLAGS, refuse_text_flags

CLASSIFICATION = "classification"
# And without these flags.
_CLASSIFIER_FLAG_DEFAULTS = {"class_weights": None, "long_texts": TRUNCATE, "abstain_below": None}
_USER_CODE_PLACE = re.compile(r'^    File "(.+?)", line (\d+)', re.MULTILINE)


class Entry(NamedTuple):
    """A task that was found by its name.

    `family` is the name of a family in the catalog, or `module:Class` of a task class outside this
    package. `variant` distinguishes the task within its family, see ServedTask.from_settings.
    """

    name: str
    family: str
    variant: Any = None

    def make(self, values: Mapping[str, Any]) -> ServedTask:
        """Makes the task.

        Args:
            values: the values of the flags and of the model's record by flag name; see
                `TaskSettings.from_values`.

        Raises:
            InputError: the values do not fit the task.
        """
        family_class = task_class(self.family)
        if (
            is_outside(self.family)
            and family_class.from_settings.__func__ is ServedTask.from_settings.__func__
        ):
            refuse_text_flags(values)  # the class reads no flag
            if "do_train" in values and not any(
                values.get(name) for name in ("data_dir", *FILE_FLAGS)
            ):
                raise InputError("--data_dir: must be given")
            for flag, absent in _CLASSIFIER_FLAG_DEFAULTS.items():
                if values.get(flag) not in (None, absent):
                    raise InputError(
                        f"--{flag}: {self.name} has no method from_settings that reads it; leave "
                        "it out"
                    )
        try:
            settings = family_class.settings_class.from_values(values)
            return family_class.from_settings(self.variant, settings)
        except Exception as error:
            if isinstance(error, InputError) or not is_outside(self.name):
                raise
            raise failure(self.name, "making the task fails", error) from error


def _entries(script: str | None) -> Iterator[Entry]:
    """Yields the tasks of a script, or of all families."""
    for name, family in catalog.families().items():
        if script in (None, family.script):
            variants = (
                catalog.load(family.variants) if family.variants else dict.fromkeys(family.tasks)
            )
            yield from (Entry(task, name, variant) for task, variant in variants.items())


def find(task_name: str, script: str | None = None) -> Entry:
    """Finds a task by its name in the table, or by `module:Class`.

    Args:
        task_name: the name, without regard to case, hyphens and underscores; or `module:Class`,
            which may belong to any family.
        script: the script whose task names are accepted, such as "run_classifier"; None accepts the
            names of all scripts.

    Raises:
        InputError: there is no such task.
    """
    if is_outside(task_name):
        outside_class = load(task_name)
        is_processor = issubclass(outside_class, DataProcessor)  # a variant of classification
        return Entry(
            task_name, *((CLASSIFICATION, outside_class) if is_processor else (task_name, None))
        )
    plain_name = _plain(task_name)
    entries = list(_entries(script))
    entry = next((entry for entry in entries if _plain(entry.name) == plain_name), None)
    if entry is None:
        names = [entry.name for entry in entries]
        raise InputError(
            f"Task not found: {task_name}; give one of {', '.join(names)}, or module:Class"
        )
    return entry._replace(name=task_name)


def make_task(task_name: str, values: Mapping[str, Any]) -> ServedTask:
    """Makes the task with a name.

    Args:
        task_name: the name, as for `find`.
        values: the values of the flags and of the model's record by flag name; see `Entry.make`.

    Raises:
        InputError: there is no such task, or the values do not fit it.
    """
    return find(task_name).make(values)


def task_family(task_name: str) -> str:
    """Returns the family of a task for `task_class`.

    Args:
        task_name: the name, as for `find`.

    Raises:
        InputError: there is no such task.
    """
    return find(task_name).family


def task_class(family: str) -> type[ServedTask]:
    """Returns the class of a family's tasks.

    Args:
        family: the name of a family in the catalog, or `module:Class`.

    Raises:
        InputError: `module:Class` names no task.
    """
    families = catalog.families()
    return load(families[family].task if family in families else family)


def canonical_name(task_name: str) -> str:
    """Returns the name of a task for the record of an export: `module:Class` unchanged, other names
    in lower case.

    Args:
        task_name: the name, as for `find`.
    """
    return task_name if is_outside(task_name) else task_name.lower()


def is_same(task_name: str, other: str) -> bool:
    """Returns whether two names name the same task.

    Args:
        task_name: the first name, as for `make_task`.
        other: the second name, as for `make_task`.
    """
    if is_outside(task_name) or is_outside(other):
        return task_name == other
    return _plain(task_name) == _plain(other)


def is_outside(task_name: str) -> bool:
    """Returns whether a name is `module:Class`, a task outside this package.

    Args:
        task_name: the name, as for `find`.
    """
    return ":" in task_name


def load(task_name: str) -> type:
    """Imports the class that `module:Class` names.

    Args:
        task_name: `module:Class`, with an absolute module name.

    Raises:
        InputError: there is no such class, importing it fails, or it is no task.
    """
    module_name, _, class_name = task_name.partition(":")
    if module_name.startswith("."):
        raise InputError(
            f"--task_name={task_name}: {module_name!r} is relative; give the module as in `import "
            "package.module`"
        )
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        absent = getattr(error, "name", None) or module_name
        if not module_name or (
            isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{absent}.")
        ):
            raise InputError(
                f"--task_name={task_name}: there is no module {module_name!r}; put its folder on "
                "PYTHONPATH"
            ) from error
        raise failure(task_name, "importing it fails", error) from error
    outside_class = getattr(module, class_name, None)
    specification = module.__spec__
    location = (specification and specification.origin) or module_name
    if not isinstance(outside_class, type):
        raise InputError(
            f"--task_name={task_name}: {location} defines no class {class_name!r}; correct the name"
        )
    if not issubclass(outside_class, DataProcessor | ServedTask):
        raise InputError(
            f"--task_name={task_name}: is neither a DataProcessor nor a Task of "
            "official_bert/tasks/base.py; inherit from one of them"
        )
    missing = sorted(getattr(outside_class, "__abstractmethods__", ()))
    if missing:
        raise InputError(
            f"--task_name={task_name}: lacks {', '.join(missing)}; define what Task asks for"
        )
    return outside_class


def failure(task_name: str, what: str, error: Exception) -> InputError:
    """Returns the error of a class outside this package, with the place in its file where it was
    raised.

    Args:
        task_name: the name of the class, `module:Class`.
        what: the action that fails, for the message, such as "importing it fails".
        error: the exception that the class raised.
    """
    kind, reason = type(error).__name__, str(error)
    if isinstance(error, SyntaxError):
        places, reason = [(error.filename, error.lineno)], error.msg
    # An error in a graph, whose lines TensorFlow tells in the message.
    elif places := _USER_CODE_PLACE.findall(reason):
        kind, _, reason = reason.strip().splitlines()[-1].strip().partition(": ")
    else:
        places = [
            (frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)
        ]
    module_file = getattr(sys.modules.get(task_name.partition(":")[0]), "__file__", None)
    ((file, line),) = [place for place in places if place[0] == module_file][-1:] or places[-1:]
    return InputError(
        f"--task_name={task_name}: {what} ({kind} in {file}, line {line}: {reason}); correct it"
    )


def _plain(task_name: str) -> str:
    """Returns a name for comparison, that of XNLI without its language; tsv is an earlier name
    of text.
    """
    plain = "xnli" if glue.xnli_language(task_name) else glue.plain_name(task_name)
    return "text" if plain == "tsv" else plain
