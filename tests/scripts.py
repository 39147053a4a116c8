"""Runs the command-line scripts as a user does: as processes."""

import os
import subprocess
import sys

from tests.shared import ROOT


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
