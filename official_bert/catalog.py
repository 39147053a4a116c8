"""Lists the commands, families, flags and hooks of the core and of the installed extensions.

In: the records of the core and of the extensions. Out: functions that return parts of them. A
module that a record names is imported when it is first used.
"""

import dataclasses
import functools
import importlib
import importlib.metadata
import pkgutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from official_bert.core import CORE
from official_bert.extension import HOOKS, Command, Extension, Family
from official_bert.io import errors

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ENTRY_POINTS = "official_bert.extensions"
_FOLDER = "official_bert.extensions"

Options = TypeVar("Options", bound="DataclassInstance")


@functools.cache
def extensions() -> tuple[Extension, ...]:
    """Returns the records of all extensions, those of this package first.

    Raises:
        ValueError: two extensions have the same name.
    """
    records = [*_list_packaged_extensions(), *_list_installed_extensions()]
    names = [record.name for record in records]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two extensions are called {name}; rename one of them")
    return tuple(records)


def _list_packaged_extensions() -> list[Extension]:
    try:
        folder = importlib.import_module(_FOLDER)
    except ModuleNotFoundError:  # a user may delete all extensions
        return []
    names = sorted(module.name for module in pkgutil.iter_modules(folder.__path__))
    return [importlib.import_module(f"{_FOLDER}.{name}").EXTENSION for name in names]


def _list_installed_extensions() -> list[Extension]:
    """Returns the extensions of other packages. A broken one causes a warning."""
    records = []
    for entry_point in list_entry_points():
        try:
            record = entry_point.load()
        except Exception as error:
            errors.warn(
                "The extension %s cannot be loaded (%s: %s); install it again, or uninstall it",
                entry_point.value,
                type(error).__name__,
                errors.brief(error),
            )
            continue
        if not isinstance(record, Extension):
            errors.warn(
                "The extension %s is no Extension of official_bert/extension.py", entry_point.value
            )
            continue
        records.append(record)
    return records


def list_entry_points() -> list[importlib.metadata.EntryPoint]:
    """Returns the extensions that other installed packages register, sorted."""
    return sorted(importlib.metadata.entry_points(group=ENTRY_POINTS))


@functools.cache
def commands() -> Mapping[str, Command]:
    """Returns all commands by name, those of the core first."""
    return _merge("commands")


@functools.cache
def families() -> Mapping[str, Family]:
    """Returns all families of tasks by name."""
    return _merge("families")


def _merge(field: str) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for record in (CORE, *extensions()):
        for name, value in getattr(record, field).items():
            if name in merged:
                raise ValueError(
                    f"extension {record.name}: {field} has {name} already; give it another name"
                )
            merged[name] = value
    return merged


@functools.cache
def options_class(command: str) -> type:
    """Returns the class of a command's flags: those of the command, and of extensions.

    A flag of an extension replaces the command's flag of the same name, at its place in --help.

    Args:
        command: the name of the command.
    """
    command_class = load(commands()[command].options)
    added = [load(record.options[command]) for record in extensions() if command in record.options]
    if not added:
        return command_class

    # The class has no name in a module, so that pickle needs a function that makes it.
    def reduce(options: Any) -> tuple:
        return _restore_options, (command, vars(options))

    members = {
        "__doc__": command_class.__doc__,
        "__module__": command_class.__module__,
        "__reduce__": reduce,
    }
    combined = type(command_class.__name__, (*added, command_class), members)
    return dataclasses.dataclass(frozen=True, kw_only=True)(combined)


def _restore_options(command: str, values: Mapping[str, Any]) -> Any:
    return options_class(command)(**values)


def options_part(options: Any, part: type[Options]) -> Options:
    """Returns the flags of an extension from the options of a command.

        flags = options_part(options, LoraOptions)
        flags.lora_rank

    Args:
        options: the options of the command.
        part: the extension's class of flags.

    Returns:
        An instance of the class. It has the defaults if the extension adds no flags to the command,
        or if the options were made in Python. A flag of the command with the same name does not
        count.
    """
    if not isinstance(options, part):
        return part()
    names = [field.name for field in dataclasses.fields(part)]
    return part(**{name: getattr(options, name) for name in names})


@functools.cache
def public_names() -> Mapping[str, str]:
    """Returns the names that extensions add to `official_bert`: name -> `module:name`."""
    names: dict[str, str] = {}
    for record in extensions():
        names.update(record.public)
    return names


@functools.cache
def hooks(name: str) -> tuple[Callable, ...]:
    """Imports and returns the functions of the extensions for a hook.

    Args:
        name: the name of the hook in `extension.HOOKS`.

    Raises:
        ValueError: there is no such hook.
    """
    if name not in HOOKS:
        raise ValueError(f"{name} is no hook; extension.py lists them")
    return tuple(load(record.hooks[name]) for record in extensions() if name in record.hooks)


@functools.cache
def members(hook: str) -> Mapping[str, Any]:
    """Returns the methods and properties that extensions add to a class of the core, by name.

    Args:
        hook: a hook whose functions have no argument and return such a mapping.

    Raises:
        ValueError: two extensions add the same name.
    """
    merged: dict[str, Any] = {}
    for function in hooks(hook):
        for name, member in function().items():
            if name in merged:
                raise ValueError(f"{hook}: two extensions have {name}; rename one of them")
            merged[name] = member
    return merged


def bind_member(hook: str, owner: object, name: str) -> Any:
    """Returns a method or property that an extension adds to an object of the core.

    It is for `__getattr__`, which Python calls for a name that the object lacks.

    Args:
        hook: the hook by which extensions add members to the object's class.
        owner: the object.
        name: the name of the method or property.

    Raises:
        AttributeError: no extension has it.
    """
    if name.startswith("_") or name not in members(hook):
        raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
    member = members(hook)[name]
    bind = getattr(member, "__get__", None)
    return member if bind is None else bind(owner, type(owner))


def load(name: str) -> Any:
    """Imports an object.

    Args:
        name: its place, as `module:name`.
    """
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
