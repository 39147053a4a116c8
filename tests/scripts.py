"""Runs the command-line scripts as processes, or in this process, which has loaded TensorFlow.

Processes are forked from one that has imported TensorFlow. A test of the start itself, such as what
it imports, runs a new interpreter: `run_interpreter`.
"""

import contextlib
import functools
import io
import json
import logging as std_logging
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import typing
from collections.abc import Callable, Sequence

from absl import logging
from absl.flags import FLAGS

from official_bert import catalog
from official_bert.cli import flags
from official_bert.cli.commands import load
from official_bert.io import processes
from tests.forking import forked_python
from tests.shared import GOLDEN, ROOT, recording

PYTHONPATH = {"PYTHONPATH": str(ROOT)}
# What `official-bert` runs.
MAIN = "from official_bert.cli.commands import main; main()"


def command_line(name: str) -> list[str]:
    """What stands behind `python` to run a script, such as "run_squad.py", or a command, such as
    "predict".
    """
    return [str(ROOT / name)] if name.endswith(".py") else ["-c", MAIN, name]


def program_of(name: str) -> str:
    """The name of the program in the messages of a script or of a command."""
    return name if name.endswith(".py") else f"official-bert {name}"


def run_script(name: str, *arguments: str, **settings) -> subprocess.CompletedProcess:
    """Runs a script of the repository root, or a command, with flags in a forked process;
    `settings` are those of `run_python`.
    """
    return run_python(*command_line(name), *arguments, **settings)


def run_python(*command: str, **settings) -> subprocess.CompletedProcess:
    """Runs a Python command line, such as "-c" and a program, in a forked process; see
    `run_interpreter`.
    """
    return _run([forked_python(), *command], **settings)


def run_interpreter(*command: str, **settings) -> subprocess.CompletedProcess:
    """Starts a new Python interpreter with a command line, and asserts its exit status.

    Args:
        command: a script, or "-c" and a program, with its arguments.
        settings: the expected `status`, `timeout_secs`, and environment variables.

    Returns:
        The finished process with text in `stdout` and `stderr`.
    """
    return _run([sys.executable, *command], **settings)


def _run(command: Sequence, status: int = 0, timeout_secs: float = 600, **environment: str):
    finished = subprocess.run(
        [*map(str, command)],
        cwd=ROOT,
        env=os.environ | PYTHONPATH | environment,
        capture_output=True,
        text=True,
        timeout=timeout_secs,
        check=False,
    )
    assert finished.returncode == status, (
        f"{command} exited with {finished.returncode}, expected "
        f"{status}\n{finished.stdout}\n{finished.stderr}"
    )
    return finished


def wait_for(is_there: Callable[[], object], process: subprocess.Popen, within_secs: float = 300):
    """Waits for what a process makes, which must not end before."""
    deadline = time.monotonic() + within_secs
    while not is_there():
        assert process.poll() is None, "the process has ended before"
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Finished(typing.NamedTuple):
    """The log of a run in this process, under the name that it has for a process."""

    stderr: str


def run_here(script: str, *arguments: str) -> Finished:
    """Runs a script of the repository root, or a command, in this process, which saves the 5 s of
    loading TensorFlow.

    Its errors are raised instead of ending in a sentence and an exit status.
    """
    log = io.StringIO()
    with _defined(script, log) as (load_function, read):
        _parse(script, arguments)
        load_function()(read())
    return Finished(log.getvalue())


class Ended(typing.NamedTuple):
    """The end of a run in this process: its exit status, its last sentence (empty after a
    success) and its log.
    """

    status: int
    sentence: str
    log: str


def end_of(script: str, *arguments: str) -> Ended:
    """Runs a script of the repository root, or a command, in this process to its end, as
    `flags.run` does for a process.

    Errors that are no input errors are raised: a process would print a traceback.
    """
    log, name = io.StringIO(), sys.argv[0]
    handlers = {number: signal.getsignal(number) for number in processes.ENDING_SIGNALS}
    sys.argv[0] = program_of(script)
    try:
        with _defined(script, log) as (load_function, read):
            _parse(script, arguments)
            flags.answer_for_input(load_function, read)
    except SystemExit as end:
        if isinstance(end.code, str):
            return Ended(1, end.code, log.getvalue())
        return Ended(end.code or 0, "", log.getvalue())
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        sys.argv[0] = name
    return Ended(0, "", log.getvalue())


def _parse(script: str, arguments: tuple[str, ...]):
    command = catalog.commands()[script.removesuffix(".py")]
    flags.parse([program_of(script), *map(str, arguments)], command.ignores_unknown_flags)


@contextlib.contextmanager
def _defined(script: str, log: io.StringIO):
    """Defines the flags of a script and collects what it logs; afterwards both are as before.

    Yields:
        A function that loads what the script hands its options to, and the function that reads them
        from parsed flags.
    """
    name = script.removesuffix(".py")
    others, verbosity = set(FLAGS), logging.get_verbosity()
    handler = std_logging.StreamHandler(log)
    logger, own = logging.get_absl_logger(), logging.get_absl_handler()
    filters = list(own.filters)
    try:
        read = flags.define(catalog.options_class(name))
        logging.set_verbosity(logging.INFO)
        logger.addHandler(handler)
        yield functools.partial(load, name), read
    finally:
        logger.removeHandler(handler)
        own.filters[:] = filters
        logging.set_verbosity(verbosity)
        for name in set(FLAGS) - others:
            delattr(FLAGS, name)
        FLAGS.unparse_flags()


def flag_list(**flags) -> list[str]:
    """`name=value` pairs as command-line flags."""
    return [f"--{name}={value}" for name, value in flags.items()]


def run_recorded(
    name: str, output_dir: pathlib.Path, run: Callable = run_script
) -> tuple[typing.Any, Callable[[str], pathlib.Path]]:
    """Runs a command that was recorded from the original into an empty folder, by run_script or
    run_here.

    Returns:
        What `run` returns, and a function from the name of a file that the original wrote to its
        path.
    """
    here = GOLDEN / "scripts"
    command = json.loads((here / "commands.json").read_text())[name]
    places = {"$HERE": str(here), "$OUT": str(output_dir)}
    flags = {
        flag: re.sub(r"\$(HERE|OUT)", lambda found: places[found.group()], str(value))
        for flag, value in command["flags"].items()
    }
    expected = functools.partial(recording, "scripts", "expected", name)
    return run(command["script"], *flag_list(**flags)), expected
