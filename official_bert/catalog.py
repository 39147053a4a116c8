"""The catalog of this installation: the commands, families, flags and hooks of the core and of its
extensions.

Nothing is imported but the records, until something of them is used.
"""

import dataclasses
import functools
import importlib
import importlib.metadata
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from official_bert.core import CORE
from official_bert.extension import HOOKS, Command, Extension, Family
from official_bert.io import errors

ENTRY_POINTS = "official_bert.extensions"
_FOLDER = "official_bert.extensions"

Options = TypeVar("Options")


@functools.cache
def extensions() -> tuple[Extension, ...]:
    """Returns the records of the extensions: those of this package by name, then those of other
    packages.
    """
    records = [*_packaged_extensions(), *_installed_extensions()]
    names = [record.name for record in records]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two extensions are called {name}; rename one of them")
    return tuple(records)


def _packaged_extensions() -> list[Extension]:
    try:
        folder = importlib.import_module(_FOLDER)
    except ModuleNotFoundError:  # somebody has deleted all of them
        return []
    names = sorted(module.name for module in pkgutil.iter_modules(folder.__path__))
    return [importlib.import_module(f"{_FOLDER}.{name}").EXTENSION for name in names]


def _installed_extensions() -> list[Extension]:
    """Returns the extensions of other packages. One that cannot be imported does not stop the core."""
    records = []
    for entry_point in _entry_points():
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


def _entry_points() -> list[importlib.metadata.EntryPoint]:
    return sorted(importlib.metadata.entry_points(group=ENTRY_POINTS))


@functools.cache
def commands() -> Mapping[str, Command]:
    """Returns all commands by name: those of the core, in the order in which a model is made and
    used, then others.
    """
    return _merged("commands")


@functools.cache
def families() -> Mapping[str, Family]:
    """Returns all families of tasks by name."""
    return _merged("families")


def _merged(field: str) -> dict[str, Any]:
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
    """Returns the class of a command's flags: that of the command, and those that extensions add
    to it.

    A flag of an extension replaces one of the same name of the command, at its place in --help.
    """
    command_class = load(commands()[command].options)
    added = [load(record.options[command]) for record in extensions() if command in record.options]
    if not added:
        return command_class

    def reduce(options):  # pickle finds no class by the name of this one
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
    """Returns the flags of one options class out of the options of a command.

    An extension reads its flags by it. Options whose class does not have the part have its
    defaults: those of a command to which the extension adds no flags, even if a flag of the command
    has the same name, and those that somebody made in Python.

        flags = options_part(options, LoraOptions)
        flags.lora_rank
    """
    if not isinstance(options, part):
        return part()
    return part(**{field.name: getattr(options, field.name) for field in dataclasses.fields(part)})


@functools.cache
def public_names() -> Mapping[str, str]:
    """Returns what extensions add to the names of `official_bert`: name -> `module:name`."""
    return {name: place for record in extensions() for name, place in record.public.items()}


@functools.cache
def hooks(name: str) -> tuple[Callable, ...]:
    """Imports and returns the functions that the extensions have for a hook of `extension.HOOKS`."""
    if name not in HOOKS:
        raise ValueError(f"{name} is no hook; extension.py lists them")
    return tuple(load(record.hooks[name]) for record in extensions() if name in record.hooks)


@functools.cache
def members(hook: str) -> Mapping[str, Any]:
    """Returns the methods and properties that extensions add to a class of the core, by name.

    Args:
        hook: a hook whose functions take no argument and return such a mapping.
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

    Raises:
        AttributeError: no extension has it.
    """
    if name.startswith("_") or name not in members(hook):
        raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
    member = members(hook)[name]
    bind = getattr(member, "__get__", None)
    return member if bind is None else bind(owner, type(owner))


def load(name: str) -> Any:
    """Imports the object that `module:name` names."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
