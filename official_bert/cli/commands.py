"""Runs a command of the catalog: for the scripts of the repository, and for the console command
`official-bert`.

In: the name of a command and its flags. Out: one call of the command's function. Its module is
imported when the command runs: `official-bert --help` loads no such function, and no --help loads
TensorFlow.
"""

import functools
import sys
import textwrap
from collections.abc import Callable
from typing import Any

from absl import flags as absl_flags

from official_bert import catalog
from official_bert.cli import flags, help_text, lean_imports, tensorflow_environment
from official_bert.cli.completion import PROGRAM, completion_script
from official_bert.extension import STAGES, Command
from official_bert.io.errors import InputError, did_you_mean
from official_bert.io.quiet_imports import quiet_imports
from official_bert.options.fields import names_missing_file
from official_bert.version import __version__

absl_flags.disclaim_key_flags()  # the flags belong to the running script, whose --help lists them

_COMPLETION = "--completion="


def main() -> None:
    """Run the subcommand of the command line; the entry point of `official-bert`."""
    name, *words = sys.argv[1:] or ["--help"]
    if name in ("-h", "-help", "--help", "help"):
        with help_text.quiet_reader():
            print(overview())
        return
    if name == "--version":
        print(f"{PROGRAM} {__version__}")
        return
    if name.startswith(_COMPLETION):
        try:
            print(completion_script(name.removeprefix(_COMPLETION)), end="")
        except InputError as error:
            sys.exit(f"{PROGRAM}: {error}")
        return
    command = name.replace("-", "_")
    if command not in catalog.commands():
        sys.exit(f"{PROGRAM}: {unknown(name)}")
    sys.argv = [f"{PROGRAM} {name}", *words]  # the name of the program in --help and in messages
    sys.modules["__main__"].__doc__ = catalog.commands()[command].summary  # absl shows it in --help
    run_command(command)


def run_command(name: str) -> None:
    """Parse the command line into the options of a command, and call its function.

    Scripts call this under `if __name__ == "__main__"`, because the import of a script must not
    define flags.

    Args:
        name: the name of the command in the catalog.
    """
    lean_imports.install()
    command = catalog.commands()[name]
    flags.run(
        lambda: functools.partial(execute, name),
        catalog.options_class(name),
        example=command.example,
        ignores_unknown_flags=command.ignores_unknown_flags,
    )


def execute(name: str, options: Any) -> None:
    """Call the function of a command.

    Args:
        name: the name of the command in the catalog.
        options: the options of the command.

    Raises:
        InputError: a flag names a wrong path. It is named before the function is imported.
    """
    check = catalog.commands()[name].check
    if check and names_missing_file(options):
        catalog.load(check)(options)
    tensorflow_environment.prepare_for_training(options)
    load(name)(options)


def load(name: str) -> Callable:
    """Import the function of a command.

    Args:
        name: the name of the command in the catalog.
    """
    with quiet_imports():  # most import TensorFlow, which --help does not need
        return catalog.load(catalog.commands()[name].function)


def overview() -> str:
    """Return the list of commands that `official-bert --help` prints.

    It has the order of a project, and an example of each command.
    """
    commands = catalog.commands()
    lines = [f"usage: {PROGRAM} COMMAND [--flag=value ...]"]
    for stage in STAGES:
        names = [name for name, command in commands.items() if command.stage == stage]
        if names:
            lines += ["", f"{stage}:"]
        for name in names:
            lines += ["", f"  {name}", *_summarise(commands[name])]
            if commands[name].example:
                example = help_text.format_example(f"{PROGRAM} {name}", commands[name].example)
                lines += [f"    {line}" for line in example.splitlines()]
    lines += [
        "",
        f"{PROGRAM} COMMAND --help lists the flags of a command. A hyphen in its name stands "
        "for an underscore.",
        f'eval "$({PROGRAM} --completion=bash)" completes commands and flags in bash. There are '
        "scripts for zsh and fish, which we have not run.",
        f"{PROGRAM} --version prints the version.",
    ]
    return "\n".join(lines)


def _summarise(command: Command) -> list[str]:
    """Returns the lines of a command's summary."""
    return textwrap.wrap(command.summary, 80, initial_indent="    ", subsequent_indent="    ")


def unknown(name: str) -> str:
    """Return the sentence about an unknown command, with the most similar one.

    Args:
        name: the command as typed.
    """
    remedy = (
        did_you_mean(name.replace("-", "_"), catalog.commands())
        or f"{PROGRAM} --help lists the commands"
    )
    return f"there is no command {name!r}; {remedy}"
