"""A step: one command line of `official-bert`, and the outputs of other steps that it reads.

Its flags have places in place of paths, so that its identity does not depend on its folder.
"""

import dataclasses
import hashlib
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
from official_bert.model_dir import STATE_NAME
from official_bert.options.fields import find_text_fault, flag_fields, value_type

# The roots of places that are no names of the user's models: the data, the step's output and its
# configuration. The identities of finished steps depend on these words.
DATA = ":data"
OUTPUT = ":own"
CONFIG = ":config"
_FLAGS_WITHOUT_EFFECT = ("num_workers", "log_every_steps")  # They change no result.
_KEY_LENGTH = 10
_MAX_NAME_LENGTH = 120


def _find_code_dir() -> str:
    """Returns the folder that contains the package."""
    package_dir = os.path.dirname(os.path.abspath(catalog.__file__))
    return os.path.dirname(package_dir)


@dataclasses.dataclass(frozen=True)
class Place:
    """A path or glob below a root.

    Args:
        root: `DATA`, `OUTPUT`, `CONFIG`, another step for its output, or the name of a model of the
            user.
        path: the path or glob in the root; empty for the root itself.
    """

    root: "str | Step"
    path: str = ""


@dataclasses.dataclass(frozen=True)
class Step:
    """A command with its flags.

    Equal steps have equal kinds and labels, because the folder's name contains both.

    Args:
        kind: the kind of step, such as "fine-tuning".
        label: the words that tell it from other steps of its kind.
        script: the name of the command.
        flags: names and values, which are strings, numbers, places, or tuples of them.
        config: the fields of a bert_config.json to write for the command.
        seed: the seed of its random numbers, if it has one.
        continued: the end of the training that the command resumes: the step that made it and the
            prefix of its checkpoint. The command finds a copy in its output.
    """

    kind: str
    label: str
    script: str
    flags: tuple[tuple[str, Any], ...]
    config: tuple[tuple[str, Any], ...] = ()
    seed: int | None = None
    continued: Place | None = None

    @property
    def name(self) -> str:
        """The kind and the label."""
        return f"{self.kind} {self.label}"

    @property
    def config_text(self) -> str:
        """The content of its bert_config.json."""
        return json.dumps(dict(self.config), indent=2, sort_keys=True) + "\n"

    def places(self) -> list[Place]:
        """Returns the places among the values of its flags, and that of the training it resumes."""
        places = [] if self.continued is None else [self.continued]
        for _, value in self.flags:
            values = value if isinstance(value, tuple) else (value,)
            places += [each for each in values if isinstance(each, Place)]
        return places

    def inputs(self) -> list["Step"]:
        """Returns the steps whose outputs it reads."""
        return [place.root for place in self.places() if isinstance(place.root, Step)]

    def flag(self, name: str, default: Any = None) -> Any:
        """Returns the value of a flag, or a default if the step does not set it.

        Args:
            name: the name of the flag.
            default: the value for a flag that the step does not set.
        """
        return dict(self.flags).get(name, default)


def order_steps(steps: Iterable[Step]) -> list[Step]:
    """Return steps and their inputs, each once and after its inputs.

    Args:
        steps: the steps, in any order.

    Returns:
        The steps in an order in which they can run.
    """
    ordered: dict[Step, None] = {}
    for step in steps:
        if step not in ordered:
            ordered |= dict.fromkeys(order_steps(step.inputs()))
            ordered[step] = None
    return list(ordered)


def check_step(step: Step, path: str) -> None:
    """Reject flags and fields of a configuration that the command of a step would not accept.

    Args:
        step: the step.
        path: the file of the experiment, for error messages.

    Raises:
        InputError: a flag or a field is unknown, or a flag has a value that it cannot have.
    """
    place = f"{path}, its scale, or the flags behind --, for {step.name}"
    options_class = catalog.options_class(step.script)
    flags = {field.name: field for field in flag_fields(options_class)}
    config_fields = [*vars(BertConfig(vocab_size=0)), *FURTHER_FIELDS]
    _check_names(place, step.script, step.flags, list(flags))
    _check_names(place, "bert_config.json", step.config, config_fields)
    for name, value in step.flags:
        fault = _find_fault(flags[name], value)
        if fault:
            values = value if isinstance(value, tuple) else (value,)
            text = ",".join(_format(each) for each in values)
            raise InputError(f"{place}: {step.script}, --{name}: {fault}, got {text}; correct it")


def _check_names(
    place: str,
    owner: str,
    settings: Iterable[tuple[str, Any]],
    usable_names: list[str],
):
    """Rejects names that a command or a file does not have."""
    for name, _ in settings:
        if name not in usable_names:
            remedy = did_you_mean(name, usable_names) or "remove it"
            raise InputError(f"{place}: {owner} has no {name}; {remedy}")


def _find_fault(field: dataclasses.Field, value: Any) -> str | None:
    """Returns why a flag cannot have a value, in words; None for a good value or a place."""
    if value_type(field) == list[str] or isinstance(value, Place):
        return None
    if isinstance(value, tuple):
        return "takes one value, and no list"
    return find_text_fault(field, _format(value))


def _format(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Layout:
    """The folders of the steps, of the user's data, and of the user's models by their names."""

    def __init__(
        self,
        steps_dir: str,
        data_dir: str,
        encoders: Mapping[str, str],
        program: Sequence[str] = (sys.executable, "-m", "official_bert"),
        code_dir: str | None = None,
    ):
        """Creates the layout of an experiment.

        Args:
            steps_dir: the folder of the steps.
            data_dir: the folder of the user's data.
            encoders: the folders of the user's models by name.
            program: the words before the name of a command that run it.
            code_dir: the folder that contains the package to run; None for that of this process.
        """
        self.program = list(program)
        self.code_dir = _find_code_dir() if code_dir is None else code_dir
        self.steps_dir = steps_dir
        self._input_folders = {DATA: data_dir, **encoders}
        self._keys: dict[Step, str] = {}
        self._digests: dict[str, list] = {}

    def key(self, step: Step) -> str:
        """Return the identity of a step: equal if the same is computed from the same inputs.

        The user's files count by their contents and by their names in the user's folder. Hence a
        moved folder is the same, and a changed file is not.

        Args:
            step: the step.

        Returns:
            Hexadecimal digits.
        """
        if step not in self._keys:
            flags = {
                name: self._describe(value)
                for name, value in step.flags
                if name not in _FLAGS_WITHOUT_EFFECT
            }
            identity = {
                "script": step.script,
                "flags": flags,
                "config": dict(step.config),
            }
            if step.continued is not None:
                identity["continued"] = self._describe(step.continued)
            text = json.dumps(identity, sort_keys=True)
            digest = hashlib.sha256(text.encode()).hexdigest()
            self._keys[step] = digest[:_KEY_LENGTH]
        return self._keys[step]

    def _describe(self, value: Any) -> Any:
        """Returns the value of a flag for the identity of its step, without paths of folders."""
        if isinstance(value, tuple):
            return [self._describe(each) for each in value]
        if not isinstance(value, Place):
            return value
        root = value.root
        if isinstance(root, Step):
            return ["output", self.key(root), value.path]
        if root in (OUTPUT, CONFIG):
            return [root.removeprefix(":"), value.path]
        model = "" if root == DATA else root
        return [
            "given",
            model,
            value.path,
            self._read_digests(self.input_path(value)),
        ]

    def _read_digests(self, pattern: str) -> list:
        """Returns the name and digest of each file of a folder, or of those that a glob matches."""
        pattern = pattern.rstrip("/")
        if pattern not in self._digests:
            paths = files.matching(pattern)
            if not paths and files.exists(pattern):
                paths = [pattern]
            digests = []
            for path in paths:
                for name, file_path in _list_files(path):
                    digests.append([name, files.sha256(file_path)])
            self._digests[pattern] = digests
        return self._digests[pattern]

    def folder(self, step: Step) -> str:
        """Return the folder of a step, in whose name are its kind, its label and its identity.

        Args:
            step: the step.
        """
        readable_name = re.sub(r"[^A-Za-z0-9.]+", "-", step.name).strip("-").lower()
        short_name = readable_name[:_MAX_NAME_LENGTH]
        folder_name = f"{short_name}-{self.key(step)}"
        return os.path.join(self.steps_dir, folder_name)

    def output(self, step: Step) -> str:
        """Return the folder for the output of a step's command.

        Args:
            step: the step.
        """
        return os.path.join(self.folder(step), "output")

    def config_file(self, step: Step) -> str:
        """Return the path of the configuration that is written for a step.

        Args:
            step: the step.
        """
        return os.path.join(self.folder(step), "bert_config.json")

    def input_path(self, place: Place) -> str:
        """Return the path of a place in the user's data or models, or in the output of a step.

        Args:
            place: the place, whose root is `DATA`, the name of a model, or a step.
        """
        folder = self._root_folder(place.root)
        return os.path.join(folder, place.path) if place.path else folder

    def _root_folder(self, root: str | Step) -> str:
        if isinstance(root, Step):
            return self.output(root)
        return self._input_folders.get(root, "")

    def path(self, place: Place, step: Step) -> str:
        """Return the path of a place in the flags of a step.

        Args:
            place: the place; with the root `OUTPUT` or `CONFIG` it belongs to the step itself.
            step: the step.
        """
        if place.root == CONFIG:
            return self.config_file(step)
        if place.root == OUTPUT:
            return self.input_path(Place(step, place.path))
        return self.input_path(place)

    def command(self, step: Step) -> list[str]:
        """Return the name of a step's command and its flags.

        Args:
            step: the step.

        Returns:
            The words behind `program`: the name, then a word `--flag=value` for each flag.
        """
        words = [step.script]
        for name, value in step.flags:
            values = value if isinstance(value, tuple) else (value,)
            text = ",".join(self._format(each, step) for each in values)
            words.append(f"--{name}={text}")
        return words

    def copied_files(self, step: Step) -> list[str]:
        """Return what a step needs in its output before it first runs.

        Args:
            step: the step.

        Returns:
            Globs of the files of the checkpoint that its command resumes, and last the path of the
            `checkpoint` file that names this checkpoint; nothing for other steps.
        """
        if step.continued is None:
            return []
        folder, prefix = os.path.split(self.input_path(step.continued))
        step_number = prefix.rpartition("-")[2]
        names = (f"{prefix}.data-*", f"{prefix}.index", f"input.ckpt-{step_number}-*", STATE_NAME)
        return [os.path.join(folder, name) for name in names]

    def shell_line(self, step: Step) -> str:
        """Return the command of a step as a user would type it.

        Args:
            step: the step.
        """
        return shlex.join(["official-bert", *self.command(step)])

    def _format(self, value: Any, step: Step) -> str:
        return self.path(value, step) if isinstance(value, Place) else _format(value)


def _list_files(path: str) -> list[tuple[str, str]]:
    """Returns names and paths of the files of a folder, or of the one file."""
    if not files.is_folder(path):
        return [(os.path.basename(path), path)]
    paths = []
    for folder, _, names in os.walk(path):
        paths += [os.path.join(folder, name) for name in names]
    return [(os.path.relpath(each, path), each) for each in sorted(paths)]
