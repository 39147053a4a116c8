"""A step: one command line of `official-bert`, and what of other steps it reads.

Places stand for paths in its flags, so that its identity does not depend on where its output lies.
"""

import dataclasses
import hashlib
import importlib.util
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from official_bert import catalog
from official_bert.config import FURTHER_FIELDS, BertConfig
from official_bert.io import files
from official_bert.io.errors import InputError, did_you_mean
from official_bert.options.fields import fault_of, flag_fields, kind_of

_CODE_DIR = os.path.dirname(importlib.util.find_spec("official_bert").submodule_search_locations[0])
DATA, OWN, CONFIG = ":data", ":own", ":config"  # roots of places that no given model has for a name
_WITHOUT_MEANING = ("num_workers", "log_every_steps")  # flags that change no result
_KEY_LENGTH, _LONGEST_NAME = 10, 120
_NUMBERS = {int: "a whole number", float: "a number"}
_TRUTHS = ("true", "t", "1", "false", "f", "0")  # as absl reads them


@dataclasses.dataclass(frozen=True)
class Place:
    """A path or glob below the user's data, the step's own output, another step's, or, by its
    name, a given model.
    """

    root: "str | Step"
    path: str = ""


@dataclasses.dataclass(frozen=True)
class Step:
    """A command by its name, and flags whose values are strings, numbers, places, or tuples of
    them.

    Equal steps have equal kinds and labels, for these are in the folder's name. `config` is written
    for the script.
    """

    kind: str
    label: str
    script: str
    flags: tuple[tuple[str, Any], ...]
    config: tuple[tuple[str, Any], ...] = ()
    seed: int | None = None

    @property
    def name(self) -> str:
        return f"{self.kind} {self.label}"

    @property
    def config_text(self) -> str:
        return json.dumps(dict(self.config), indent=2, sort_keys=True) + "\n"

    def places(self) -> list[Place]:
        values = [value if isinstance(value, tuple) else (value,) for _, value in self.flags]
        return [each for value in values for each in value if isinstance(each, Place)]

    def inputs(self) -> list["Step"]:
        return [place.root for place in self.places() if isinstance(place.root, Step)]

    def flag(self, name: str, default: Any = None) -> Any:
        return dict(self.flags).get(name, default)


def in_order(steps: Iterable[Step]) -> list[Step]:
    """Returns steps with all that they need, each once and after those that it needs."""
    ordered: dict[Step, None] = {}
    for step in steps:
        if step not in ordered:
            ordered |= dict.fromkeys([*in_order(step.inputs()), step])
    return list(ordered)


def check_step(step: Step, path: str):
    """Refuses flags that a script lacks, of which it only warns, or refuses, and unknown fields of
    a configuration.

    `path` is the file of the experiment, for the message.
    """
    where = f"{path}, its scale, or the flags behind --, for {step.name}"
    flags = {field.name: field for field in flag_fields(catalog.options_class(step.script))}
    fields = [*vars(BertConfig(None)), *FURTHER_FIELDS]
    pairs = (step.script, step.flags, list(flags)), ("bert_config.json", step.config, fields)
    for holder, settings, usable_names in pairs:
        for name, _ in settings:
            if name not in usable_names:
                remedy = did_you_mean(name, usable_names) or "remove it"
                raise InputError(f"{where}: {holder} has no {name}; {remedy}")
    for name, value in step.flags:
        if fault := _fault(flags[name], value):
            value_text = ",".join(map(_text, value)) if isinstance(value, tuple) else _text(value)
            raise InputError(
                f"{where}: {step.script}, --{name}: {fault}, got {value_text}; correct it"
            )


def _fault(field: dataclasses.Field, value: Any) -> str | None:
    """Returns why a flag cannot have a value, in words; None if it can, or if only its place is
    known.
    """
    kind = kind_of(field)
    if kind == list[str] or isinstance(value, Place):
        return None
    if isinstance(value, tuple):
        return "takes one value, and no list"
    text = _text(value)
    if kind is bool:
        return None if text.lower() in _TRUTHS else "must be true or false"
    try:
        value = kind(text)
    except ValueError:
        return f"must be {_NUMBERS[kind]}"
    return fault_of(field, value)


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Layout:
    """The folders of the steps, of the user's data, and of the models by name that the user names."""

    def __init__(
        self,
        steps_dir: str,
        data_dir: str,
        encoders: Mapping[str, str],
        program: Sequence[str] = (sys.executable, "-m", "official_bert"),
        code_dir: str = _CODE_DIR,
    ):
        """Lays out an experiment.

        Args:
            steps_dir: the folder of the steps.
            data_dir: the folder of the user's data.
            encoders: the folders of the user's models by name.
            program: the words before the name of a command that run it.
            code_dir: the folder of the package that a command runs, whether it is installed or in a
                checkout.
        """
        self.program, self.code_dir = list(program), code_dir
        self.steps_dir = steps_dir
        self._input_folders = {DATA: data_dir, **encoders}
        self._keys: dict[Step, str] = {}
        self._digests: dict[str, list] = {}

    def key(self, step: Step) -> str:
        """Returns the identity of a step: equal for steps that compute the same from the same
        inputs.

        Given files count by their contents and their names inside of a given folder, so that a
        moved folder is the same and a changed file is not.
        """
        if step not in self._keys:
            flags = {
                name: self._meaning(value)
                for name, value in step.flags
                if name not in _WITHOUT_MEANING
            }
            meaning = {"script": step.script, "flags": flags, "config": dict(step.config)}
            text = json.dumps(meaning, sort_keys=True)
            self._keys[step] = hashlib.sha256(text.encode()).hexdigest()[:_KEY_LENGTH]
        return self._keys[step]

    def _meaning(self, value: Any) -> Any:
        match value:
            case tuple():
                return [self._meaning(each) for each in value]
            case Place(Step() as step, path):
                return ["output", self.key(step), path]
            case Place(":own" | ":config" as root, path):
                return [root.removeprefix(":"), path]
            case Place(root, path):
                return [
                    "given",
                    "" if root == DATA else root,
                    path,
                    self._contents(self.path(value)),
                ]
        return value

    def _contents(self, pattern: str) -> list:
        pattern = pattern.rstrip("/")
        if pattern not in self._digests:
            starts = files.matching(pattern) or ([pattern] if files.exists(pattern) else [])
            file_pairs = [pair for start in starts for pair in _files_below(start)]
            self._digests[pattern] = [[name, files.sha256(path)] for name, path in file_pairs]
        return self._digests[pattern]

    def folder(self, step: Step) -> str:
        readable = re.sub(r"[^A-Za-z0-9.]+", "-", step.name).strip("-").lower()
        return os.path.join(self.steps_dir, f"{readable[:_LONGEST_NAME]}-{self.key(step)}")

    def output(self, step: Step) -> str:
        return os.path.join(self.folder(step), "output")

    def path(self, place: Place, step: Step | None = None) -> str:
        """Returns the path of a place in the flags of a step; given places need no step."""
        if place.root == CONFIG:
            return os.path.join(self.folder(step), "bert_config.json")
        if place.root == OWN or isinstance(place.root, Step):
            folder = self.output(step if place.root == OWN else place.root)
        else:
            folder = self._input_folders.get(place.root, "")
        return os.path.join(folder, place.path) if place.path else folder

    def command(self, step: Step) -> list[str]:
        """Returns the name of the step's command and its flags."""
        return [step.script, *(f"--{name}={self._text(value, step)}" for name, value in step.flags)]

    def shell_line(self, step: Step) -> str:
        return shlex.join(["official-bert", *self.command(step)])

    def _text(self, value: Any, step: Step) -> str:
        if isinstance(value, tuple):
            return ",".join(self._text(each, step) for each in value)
        return self.path(value, step) if isinstance(value, Place) else _text(value)


def _files_below(start: str) -> list[tuple[str, str]]:
    """Returns names and paths of the files of a folder, or of the one file."""
    if not files.is_folder(start):
        return [(os.path.basename(start), start)]
    paths = sorted(
        os.path.join(folder, name) for folder, _, names in os.walk(start) for name in names
    )
    return [(os.path.relpath(path, start), path) for path in paths]
