"""Runs the steps of a plan, one or several at a time, each until it has finished once.

A finished step has a result.json with the metrics of its command, and does not run again. An
interrupted step runs again in the same folder, where training scripts resume from a checkpoint.
"""

import csv
import json
import math
import os
import time
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from absl import logging

from official_bert.extensions.experiments.declarations import MINIMAL_PAIRS
from official_bert.extensions.experiments.steps import DATA, Layout, Step
from official_bert.io import files, processes, reading, writing
from official_bert.io.errors import InputError
from official_bert.model_dir import STATE_NAME

RESULT_FILE = "result.json"
LOG_FILE = "log.txt"
Result = dict[str, Any]  # The content of a result.json.
_LOG_LINES = 15  # of a log that are printed
_FINE_TUNING = "fine-tuning"  # Steps whose models only other steps of the plan need.
# Large files of a fine-tuning that its results do not need.
_LARGE_FILES = ("model.ckpt-*", "input.ckpt-*", "checkpoint", "*.tf_record", "*logits.npz")
_EVALUATION_PREFIX = "eval_results"
_EVALUATION_SUFFIX = ".txt"
_SEARCH_RESULTS = "search_results.tsv"
_BEST_MARK = "*"


def check_data(steps: Iterable[Step], layout: Layout) -> None:
    """Reject missing data before any step runs.

    Args:
        steps: all steps of a plan.
        layout: their folders.

    Raises:
        InputError: a step reads a file or a folder that does not exist.
    """
    places = {place for step in steps for place in step.places() if place.root == DATA}
    paths = sorted(layout.input_path(place) for place in places)
    missing = [path for path in paths if not (files.exists(path) or files.matching(path))]
    if missing:
        raise InputError(
            f"--data_dir: lacks {', '.join(missing)}, which the experiment reads; add what is "
            "missing"
        )


def list_pending(steps: Iterable[Step], layout: Layout) -> list[Step]:
    """Return the steps that must run.

    Args:
        steps: all steps of a plan, each after its inputs.
        layout: their folders.

    Returns:
        The steps without a result, and those of whose deleted files another one needs some.
    """
    needed: set[Step] = set()
    pending = []
    for step in reversed(list(steps)):
        result = read_result(layout, step)
        if result is None or (step in needed and result["is_stripped"]):
            pending.append(step)
            needed.update(step.inputs())
    return pending[::-1]


def execute(steps: list[Step], layout: Layout, num_parallel: int = 1) -> list[str]:
    """Run all pending steps but those that need a failed one.

    Args:
        steps: all steps of a plan, each after its inputs.
        layout: their folders.
        num_parallel: the number of steps that run at the same time. Each gets its own share of the
            CPUs, as far as there are enough.

    Returns:
        For each failed step a sentence and the end of its log.
    """
    pending = list_pending(steps, layout)
    failures: list[str] = []
    waiting = list(pending)
    begun: dict[Step, _Begun] = {}
    unfinished = set(pending)
    logging.info("%d of %d steps are finished already", len(steps) - len(pending), len(steps))
    _delete_large_files(steps, unfinished, layout)
    with processes.CommandPool(num_parallel) as pool:
        while True:
            # Start the steps whose inputs are there, in the order of the plan.
            ready = [step for step in waiting if unfinished.isdisjoint(step.inputs())]
            for step in ready[: pool.num_free]:
                waiting.remove(step)
                log = os.path.join(layout.folder(step), LOG_FILE)
                number = pending.index(step) + 1
                logging.info(
                    "[%d/%d] %s begins, with the log %s", number, len(pending), step.name, log
                )
                begun[step] = _start(step, layout, pool, num_parallel > 1)
            if not pool.running:
                break

            # Wait for the end of a step.
            step, status = pool.wait()
            if status == 0:
                start = begun[step]
                secs = time.monotonic() - start.time
                write_result(layout, step, secs, start.is_resumed, start.commit)
                unfinished.remove(step)
                _delete_large_files(steps, unfinished, layout)
            else:
                logging.error("%s failed with status %d", step.name, status)
                log = os.path.join(layout.folder(step), LOG_FILE)
                last_lines = "\n".join(reading.read_last_lines(log, _LOG_LINES))
                failures.append(
                    f"{step.name} ended with status {status}; the end of {log}:\n{last_lines}"
                )
            if num_parallel > 1:
                _log_progress(len(pending) - len(unfinished), len(pending), pool.running)
    if waiting:
        logging.error("%d steps did not run, since they need one that failed", len(waiting))
    return failures


def _log_progress(num_finished: int, num_steps: int, running: Iterable[Step]):
    names = ", ".join(step.name for step in running) or "nothing"
    logging.info("%d of %d steps are finished; still running: %s", num_finished, num_steps, names)


class _Begun(NamedTuple):
    """The start of a step: its time, whether an earlier process was interrupted, and the commit."""

    time: float
    is_resumed: bool
    commit: str | None


def _start(step: Step, layout: Layout, pool: processes.CommandPool, shares_gpu: bool) -> _Begun:
    """Starts the command of a step."""
    folder = layout.folder(step)
    output = layout.output(step)
    if read_result(layout, step) is not None:  # Its files were deleted, and are needed again.
        files.remove_folder(folder)
    begun = _Begun(time.monotonic(), files.exists(output), processes.read_commit(layout.code_dir))
    files.make_folder(output)
    if step.config:
        with writing.replacing(layout.config_file(step)) as file:
            file.write(step.config_text)
    if not files.exists(os.path.join(output, STATE_NAME)):
        writing.copy_files(layout.copied_files(step), output)
    search_path = [layout.code_dir]
    if os.environ.get("PYTHONPATH"):
        search_path.append(os.environ["PYTHONPATH"])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(search_path)}
    if shares_gpu:
        # By default, the first process takes all memory of the GPU.
        environment.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    with open(os.path.join(folder, LOG_FILE), "ab") as log:
        command = [*layout.program, *layout.command(step)]
        pool.start(step, command, stdout=log, env=environment)
    return begun


def _delete_large_files(steps: Iterable[Step], unfinished: Collection[Step], layout: Layout):
    """Deletes the large files of finished fine-tunings that no unfinished step needs."""
    needed_steps = set(unfinished)
    for step in unfinished:
        needed_steps.update(step.inputs())
    for step in steps:
        if step.kind != _FINE_TUNING or step in needed_steps:
            continue
        result = read_result(layout, step)
        assert result is not None  # All steps but the unfinished ones have results.
        if result["is_stripped"]:
            continue
        # This is noted first, so that no half-deleted model seems whole.
        _write(layout, step, result | {"is_stripped": True})
        for folder, _, _ in list(os.walk(layout.output(step))):
            for pattern in _LARGE_FILES:
                for path in files.matching(pattern, folder):
                    files.remove(path)


def read_result(layout: Layout, step: Step) -> Result | None:
    """Return the result of a step.

    Args:
        layout: the folders of the steps.
        step: the step.

    Returns:
        The content of its result.json; None for an unfinished step.

    Raises:
        InputError: the file is damaged.
    """
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
    layout: Layout,
    step: Step,
    secs: float,
    is_resumed: bool,
    commit: str | None = None,
) -> None:
    """Write the result of a step, which marks it as finished.

    Args:
        layout: the folders of the steps.
        step: the step.
        secs: the seconds of its last process.
        is_resumed: whether an earlier process was interrupted.
        commit: the commit of the code that ran; None if it is unknown.
    """
    result = {
        "kind": step.kind,
        "label": step.label,
        "command": layout.shell_line(step),
        "seed": step.seed,
        "commit": commit,
        "secs": round(secs, 1),
        "is_resumed": is_resumed,
        "is_stripped": False,
        "metrics": read_metrics(layout.output(step)),
    }
    _write(layout, step, result)


def _write(layout: Layout, step: Step, result: Result):
    with writing.replacing(os.path.join(layout.folder(step), RESULT_FILE)) as file:
        file.write(json.dumps(result, indent=1) + "\n")


def read_metrics(output_dir: str) -> dict[str, float | None]:
    """Return the metrics of the output of a step.

    Those of a search are the metrics of its best run. The accuracies on minimal pairs are
    percentages by the names of their phenomena; that on all pairs is `minimal_pairs`. The metrics
    of a second set get the suffix of its file, as `eval_accuracy_mm`.

    Args:
        output_dir: the output folder of the step.

    Returns:
        The metrics by name; None for one that is not finite.
    """
    folder = _find_best_run(output_dir)
    metrics: dict[str, float | None] = {}
    pairs_path = os.path.join(folder, f"{MINIMAL_PAIRS}.tsv")
    if files.exists(pairs_path):
        for row in _read_rows(pairs_path):
            if row["paradigm"] == "all":
                metrics[row["phenomenon"]] = 100 * float(row["accuracy"])
        metrics[MINIMAL_PAIRS] = metrics.pop("all")
    for path in files.matching(f"{_EVALUATION_PREFIX}*{_EVALUATION_SUFFIX}", folder):
        file_name = os.path.basename(path)
        suffix = file_name.removeprefix(_EVALUATION_PREFIX).removesuffix(_EVALUATION_SUFFIX)
        for name, value in reading.read_metrics(path).items():
            metrics[f"{name}{suffix}"] = value if math.isfinite(value) else None
    return metrics


def _find_best_run(output_dir: str) -> str:
    """Returns the folder of the best run of a search; without a search the output folder."""
    path = os.path.join(output_dir, _SEARCH_RESULTS)
    if files.exists(path):
        for row in _read_rows(path):
            if row["best"] == _BEST_MARK:
                return os.path.join(output_dir, row["run"])
    return output_dir


def _read_rows(path: str) -> Iterable[dict[str, str]]:
    return csv.DictReader(reading.read_lines(path), delimiter="\t")
