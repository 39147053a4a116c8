"""Runs the command-line scripts as a user does: as processes."""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable

from tests.shared import GOLDEN, ROOT, recording


def run_script(script: str, *arguments: str, status: int = 0, timeout_secs: float = 600, **environment: str):
    """Runs `script` of the repository root with flags and asserts its exit status.

    Returns:
        subprocess.CompletedProcess with text in `stdout` and `stderr`.
    """
    finished = subprocess.run(
        [sys.executable, str(ROOT / script), *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=timeout_secs,
        check=False,
    )
    assert finished.returncode == status, (
        f"{script} exited with {finished.returncode}, expected {status}\n{finished.stdout}\n{finished.stderr}"
    )
    return finished


def flag_list(**flags) -> list[str]:
    """`name=value` pairs as command-line flags."""
    return [f"--{name}={value}" for name, value in flags.items()]


def run_recorded(
    name: str, output_dir: pathlib.Path
) -> tuple[subprocess.CompletedProcess, Callable[[str], pathlib.Path]]:
    """Runs a command that was recorded from the original, in an empty folder.

    Returns:
        The finished process, and a function from the name of a file that the original wrote to its path.
    """
    here = GOLDEN / "scripts"
    command = json.loads((here / "commands.json").read_text())[name]
    places = {"$HERE": str(here), "$OUT": str(output_dir)}
    flags = {
        flag: re.sub(r"\$(HERE|OUT)", lambda found: places[found.group()], str(value))
        for flag, value in command["flags"].items()
    }
    expected = functools.partial(recording, "scripts", "expected", name)
    return run_script(command["script"], *flag_list(**flags)), expected
