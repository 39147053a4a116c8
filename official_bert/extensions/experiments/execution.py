"""Runs the steps of a plan one after the other, each once in its life.

A finished step has a result.json with what its command measured, and is not run again; what a kill
interrupted is run again in the same folder, where training scripts find their checkpoints.
"""

import csv
import json
import math
import os
import shutil
import subprocess
import time
from collections.abc import Iterable

from absl import logging

from official_bert.extensions.experiments.declarations import MINIMAL_PAIRS
from official_bert.extensions.experiments.steps import CONFIG, DATA, Layout, Place, Step
from official_bert.io import files, processes, reading, writing
from official_bert.io.errors import InputError

RESULT_FILE, LOG_FILE = "result.json", "log.txt"
_LOG_LINES, _LOG_BYTES = 15, 20_000  # of the end of a log, which a user is shown
_COMMIT_LETTERS = 10
_TRAINING = "fine-tuning"  # the kind of steps whose models only other steps of the plan need
# What a fine-tuning leaves that its results do not need.
_LARGE = ("model.ckpt-*", "input.ckpt-*", "checkpoint", "*.tf_record", "*logits.npz")
_EVALUATION, _SUFFIX, _SEARCH_RESULTS, _BEST_MARK = (
    "eval_results",
    ".txt",
    "search_results.tsv",
    "*",
)


def check_given(steps: Iterable[Step], layout: Layout):
    """Refuses data that are not there, before anything runs."""
    for step in steps:
        data_places = [place for place in step.places() if place.root == DATA]
        for path in map(layout.path, data_places):
            if not (files.exists(path) or files.matching(path)):
                raise InputError(f"{path}: no such file or folder, which {step.name} reads; add it")


def pending_steps(steps: Iterable[Step], layout: Layout) -> list[Step]:
    """Returns those of all steps that must run: without results, or with deleted files that
    another one needs.
    """
    needed: set[Step] = set()
    pending = []
    for step in reversed(list(steps)):
        result = read_result(layout, step)
        if result is None or (step in needed and result["is_stripped"]):
            pending.append(step)
            needed.update(step.inputs())
    return pending[::-1]


def execute(steps: list[Step], layout: Layout) -> list[str]:
    """Runs all pending steps but those that need a failed one; returns a sentence and the end of
    each failed log.
    """
    pending, failures = pending_steps(steps, layout), []
    unfinished = set(pending)
    logging.info("%d of %d steps are finished already", len(steps) - len(pending), len(steps))
    _strip(steps, unfinished, layout)
    for number, step in enumerate(pending, 1):
        if not unfinished.isdisjoint(step.inputs()):
            continue
        log = os.path.join(layout.folder(step), LOG_FILE)
        logging.info("[%d/%d] %s begins, with the log %s", number, len(pending), step.name, log)
        if status := _run(step, layout):
            logging.error("%s failed with status %d", step.name, status)
            failures.append(
                f"{step.name} ended with status {status}; the end of {log}:\n{_last_lines(log)}"
            )
        else:
            unfinished.remove(step)
            _strip(steps, unfinished, layout)
    if num_left := len(unfinished) - len(failures):
        logging.error("%d steps did not run, since they need one that failed", num_left)
    return failures


def _run(step: Step, layout: Layout) -> int:
    folder, output = layout.folder(step), layout.output(step)
    if read_result(layout, step) is not None:  # whose files were deleted, and are needed
        files.remove_folder(folder)
    is_resumed = files.exists(output)
    files.make_folder(output)
    if step.config:
        with writing.replacing(layout.path(Place(CONFIG), step)) as file:
            file.write(step.config_text)
    command = [*layout.program, *layout.command(step)]
    search_path = os.pathsep.join(filter(None, [layout.code_dir, os.environ.get("PYTHONPATH")]))
    begun, commit = time.monotonic(), _read_commit(layout.code_dir)
    with open(os.path.join(folder, LOG_FILE), "ab") as log, processes.Processes() as started:
        status = started.start(
            command, stdout=log, env=os.environ | {"PYTHONPATH": search_path}
        ).wait()
    if status == 0:
        write_result(layout, step, time.monotonic() - begun, is_resumed, commit)
    return status


def _last_lines(path: str) -> str:
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - _LOG_BYTES))
        return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-_LOG_LINES:])


def _strip(steps: Iterable[Step], unfinished: set[Step], layout: Layout):
    """Deletes the checkpoints and other large files of fine-tunings that no step needs any more."""
    needed_steps = unfinished.union(*(step.inputs() for step in unfinished))
    for step in steps:
        if (
            step.kind != _TRAINING
            or step in needed_steps
            or (result := read_result(layout, step))["is_stripped"]
        ):
            continue
        # Noted first, so that no half-deleted model seems whole.
        _write(layout, step, result | {"is_stripped": True})
        for folder, _, _ in list(os.walk(layout.output(step))):
            for pattern in _LARGE:
                for path in files.matching(pattern, folder):
                    files.remove(path)


def read_result(layout: Layout, step: Step) -> dict | None:
    """Returns the content of a step's result.json; None for a step that is not finished."""
    folder = layout.folder(step)
    path = os.path.join(folder, RESULT_FILE)
    if not files.exists(path):
        return None
    with files.open_file(path, "rb") as file:
        content = file.read()
    try:
        return reading.parse_json(content)
    except InputError as error:
        raise InputError(
            f"{path}: {error}; delete the folder {folder}, and the step runs again"
        ) from None


def write_result(
    layout: Layout, step: Step, secs: float, is_resumed: bool, commit: str | None = None
):
    """Marks a step as finished, with its metrics, and the seconds of its last process and the
    commit that it ran.
    """
    result = {
        "kind": step.kind,
        "label": step.label,
        "command": layout.shell_line(step),
        "seed": step.seed,
    }
    result |= {
        "commit": commit,
        "secs": round(secs, 1),
        "is_resumed": is_resumed,
        "is_stripped": False,
    }
    _write(layout, step, result | {"metrics": read_metrics(layout.output(step))})


def _read_commit(folder: str) -> str | None:
    if shutil.which("git") is None:
        return None
    process = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=False
    )
    return process.stdout.strip()[:_COMMIT_LETTERS] if process.returncode == 0 else None


def _write(layout: Layout, step: Step, result: dict):
    with writing.replacing(os.path.join(layout.folder(step), RESULT_FILE)) as file:
        file.write(json.dumps(result, indent=1) + "\n")


def read_metrics(output_dir: str) -> dict[str, float | None]:
    """Returns the metrics of all eval_results files of a folder, or of the best run of a search in
    it.

    Those of minimal pairs are percentages, by the names of their phenomena, and that of all as
    `minimal_pairs`. The names of a second set get the suffix of its file, as `eval_accuracy_mm`. A
    metric that is no number is None.
    """
    folder, search = output_dir, os.path.join(output_dir, _SEARCH_RESULTS)
    if files.exists(search):
        rows = csv.DictReader(reading.read_lines(search), delimiter="\t")
        folder = next(
            (os.path.join(folder, row["run"]) for row in rows if row["best"] == _BEST_MARK), folder
        )
    metrics, pairs = {}, os.path.join(folder, f"{MINIMAL_PAIRS}.tsv")
    if files.exists(pairs):
        rows = [
            row
            for row in csv.DictReader(reading.read_lines(pairs), delimiter="\t")
            if row["paradigm"] == "all"
        ]
        metrics = {row["phenomenon"]: 100 * float(row["accuracy"]) for row in rows}
        metrics[MINIMAL_PAIRS] = metrics.pop("all")
    for path in files.matching(f"{_EVALUATION}*{_SUFFIX}", folder):
        suffix = os.path.basename(path).removeprefix(_EVALUATION).removesuffix(_SUFFIX)
        for line in reading.read_lines(path):
            name, equals, text = line.rpartition(" = ")
            if equals:
                metrics[f"{name}{suffix}"] = float(text) if math.isfinite(float(text)) else None
    return metrics
