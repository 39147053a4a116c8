"""A step: one command line of the project's own scripts, and what of other steps it reads.

In: a script and its flags, in which places stand for paths. Out: the identity of a step, which does not depend on where
its output lies, its folder and its command.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from official_bert.io import files

OUTPUT, CONFIG_FILE = "output", "bert_config.json"
DATA = ""  # the place of `Given` that is --data_dir
_WITHOUT_MEANING = ("num_workers", "log_every_steps")  # flags that change no result
_KEY_LENGTH, _LONGEST_NAME = 10, 120
_PART_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Given:
    """A path of the user's: below --data_dir, or in the folder of an encoder.

    Attributes:
        path: below that folder, "" for the folder itself; it may be a glob.
        encoder: the name of the encoder; "" for --data_dir.
    """

    path: str
    encoder: str = DATA


@dataclasses.dataclass(frozen=True)
class Own:
    """A path in the step's own output folder."""

    path: str = ""


@dataclasses.dataclass(frozen=True)
class Config:
    """The file with the configuration of the step's model."""


@dataclasses.dataclass(frozen=True)
class Output:
    """A path in the output folder of another step."""

    step: Step
    path: str = ""


@dataclasses.dataclass(frozen=True)
class Work:
    """How much a step computes, for the estimate of its cost.

    Attributes:
        config: the fields of the model's configuration.
        length: of the sequences, in tokens.
        num_trained, num_evaluated: sequences.
        num_predictions: of masked words, or of next tokens, in each sequence; 0 without the heads of pre-training.
        num_frozen_layers: layers that get no gradient.
    """

    config: tuple[tuple[str, Any], ...]
    length: int
    num_trained: int = 0
    num_evaluated: int = 0
    num_predictions: int = 0
    num_frozen_layers: int = 0


@dataclasses.dataclass(frozen=True)
class Step:
    """A command.

    Attributes:
        kind: what it does, in a word, such as "fine-tuning".
        label: says which one it is, for people; equal steps have equal labels, for it is in the folder's name.
        script: the script without ".py".
        flags: names and values; a value is a string, number or boolean, a place, or a tuple of them.
        config: the configuration that is written for it, if its flags name one.
        seed: the seed of the run; None without random draws.
        work: how much it computes; None if that is little.
    """

    kind: str
    label: str
    script: str
    flags: tuple[tuple[str, Any], ...]
    config: tuple[tuple[str, Any], ...] = ()
    seed: int | None = None
    work: Work | None = dataclasses.field(default=None, compare=False)

    def inputs(self) -> list[Output]:
        """Returns the outputs of other steps that it reads."""
        return [value for value in self._places() if isinstance(value, Output)]

    def given(self) -> list[Given]:
        """Returns the paths of the user's that it reads."""
        return [value for value in self._places() if isinstance(value, Given)]

    def flag(self, name: str, default: Any = None) -> Any:
        """Returns the value of a flag."""
        return dict(self.flags).get(name, default)

    def _places(self) -> Iterable[Any]:
        for _, value in self.flags:
            yield from value if isinstance(value, tuple) else (value,)


def in_order(wanted: Iterable[Step]) -> list[Step]:
    """Returns steps with all that they need, each once and after those that it needs."""
    ordered: dict[Step, None] = {}

    def add(step: Step):
        if step not in ordered:
            for needed in step.inputs():
                add(needed.step)
            ordered[step] = None

    for step in wanted:
        add(step)
    return list(ordered)


class Layout:
    """Where everything lies."""

    def __init__(self, folder: str, data_dir: str, encoders: Mapping[str, str], scripts_dir: str):
        """Remembers the places.

        Args:
            folder: of the steps.
            data_dir: the user's data.
            encoders: the folders of given models by their names.
            scripts_dir: the folder of the scripts.
        """
        self.steps_dir, self._data_dir, self._encoders = folder, data_dir, encoders
        self._scripts_dir = scripts_dir
        self._keys: dict[Step, str] = {}
        self._marks: dict[str, list] = {}

    def key(self, step: Step) -> str:
        """Returns the identity of a step: equal for steps that compute the same from the same inputs.

        Given files count by their contents and their names inside of a given folder, so that a moved folder is the same
        and a changed file is not.
        """
        if step not in self._keys:
            meaning = {
                "script": step.script,
                "flags": {
                    name: self._meaning(value) for name, value in step.flags if name not in _WITHOUT_MEANING
                },
                "config": dict(step.config),
            }
            text = json.dumps(meaning, sort_keys=True)
            self._keys[step] = hashlib.sha256(text.encode()).hexdigest()[:_KEY_LENGTH]
        return self._keys[step]

    def _meaning(self, value: Any) -> Any:
        match value:
            case tuple():
                return [self._meaning(each) for each in value]
            case Given():
                return ["given", value.encoder, value.path, self._mark(self.path(value))]
            case Output():
                return ["output", self.key(value.step), value.path]
            case Own() | Config():
                return [type(value).__name__.lower(), getattr(value, "path", "")]
        return value

    def _mark(self, pattern: str) -> list:
        """Returns names and digests of the given files."""
        pattern = pattern.rstrip("/")
        if pattern not in self._marks:
            self._marks[pattern] = [
                [os.path.relpath(path, start) if path != start else os.path.basename(path), _digest(path)]
                for start in files.matching(pattern) or ([pattern] if files.exists(pattern) else [])
                for path in _files_below(start)
            ]
        return self._marks[pattern]

    def folder(self, step: Step) -> str:
        """Returns the folder of a step, with a name that people can read."""
        readable = re.sub(r"[^A-Za-z0-9.]+", "-", f"{step.kind} {step.label}").strip("-").lower()
        return os.path.join(self.steps_dir, f"{readable[:_LONGEST_NAME]}-{self.key(step)}")

    def output(self, step: Step) -> str:
        """Returns the folder that a step's script writes to."""
        return os.path.join(self.folder(step), OUTPUT)

    def config_file(self, step: Step) -> str:
        """Returns the file of a step's configuration."""
        return os.path.join(self.folder(step), CONFIG_FILE)

    def path(self, given: Given) -> str:
        """Returns the path of what the user gave."""
        folder = self._data_dir if given.encoder == DATA else self._encoders.get(given.encoder, "")
        return os.path.join(folder, given.path) if given.path else folder

    def command(self, step: Step) -> list[str]:
        """Returns the script, with its path, and the flags."""
        script = os.path.relpath(os.path.join(self._scripts_dir, f"{step.script}.py"))
        return [script, *(f"--{name}={self._text(value, step)}" for name, value in step.flags)]

    def shell_line(self, step: Step) -> str:
        """Returns the command as a user types it."""
        return shlex.join(["python", *self.command(step)])

    def _text(self, value: Any, step: Step) -> str:
        match value:
            case tuple():
                return ",".join(self._text(each, step) for each in value)
            case Given():
                return self.path(value)
            case Own():
                return _joined(self.output(step), value.path)
            case Output():
                return _joined(self.output(value.step), value.path)
            case Config():
                return self.config_file(step)
            case bool():
                return str(value).lower()
        return str(value)


def config_text(step: Step) -> str:
    """Returns the content of a step's configuration file."""
    return json.dumps(dict(step.config), indent=2, sort_keys=True) + "\n"


def _joined(folder: str, path: str) -> str:
    return os.path.join(folder, path) if path else folder


def _digest(path: str) -> str:
    """Returns the digest of a file's content."""
    made = hashlib.sha256()
    with files.open_file(path, "rb") as file:
        while part := file.read(_PART_BYTES):
            made.update(part)
    return made.hexdigest()


def _files_below(start: str) -> list[str]:
    if not files.is_folder(start):
        return [start]
    return sorted(os.path.join(folder, name) for folder, _, names in os.walk(start) for name in names)
