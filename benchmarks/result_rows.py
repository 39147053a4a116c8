"""Runs each measurement of a benchmark in a process of its own, and continues after a stop.

In: what is to be measured. Out: a JSON line for each finished run, in the file of the results.
"""

import json
import pathlib
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any


def measure_missing(
    script: str, path: pathlib.Path, runs: Iterable[dict], marks: Mapping[str, Any]
) -> list[dict]:
    """Measures the runs whose rows are not in a file, and adds their rows.

    Args:
        script: the benchmark. With its flags and `--one RUN` it measures one run, and its last
            line is the row, which has the fields of the run and of `marks`.
        path: the file of the rows.
        runs: what tells a run from the others, in JSON's types.
        marks: fields that the rows of all these runs have.

    Returns:
        All rows of the file.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    for run in runs:
        if any((run | marks).items() <= row.items() for row in rows):
            continue
        command = [sys.executable, script, *sys.argv[1:], "--one", json.dumps(run)]
        ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        line = ended.stdout.splitlines()[-1]
        print(line, flush=True)
        rows.append(json.loads(line))
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    return rows
