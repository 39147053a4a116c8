"""Runs of scripts in child processes that are killed at a chosen event, or that may write only
small files.

The children are forked from a server process that has imported TensorFlow, here at the top, and run
nothing.
"""

import collections
import itertools
import json
import multiprocessing
import os
import pathlib
import resource
import signal
import sys
import threading
from typing import NamedTuple

import tensorflow  # noqa: F401
from tensorflow.python.lib.io import _pywrap_file_io

import official_bert
import official_bert.commands.create_pretraining_data
import official_bert.fine_tuning.finetuner
import official_bert.fine_tuning.pretrain
import official_bert.serving.model
from official_bert.training.time_limit import TimeLimit
from tests.scripts import end_of

START, RUN, SAVE, RENAME = "start-up", "run", "save", "rename"
# The functions of the system and of TensorFlow themselves: lists, sets and texts have methods of
# these names.
_RENAMES = {os.rename, os.replace, os.remove, os.unlink, os.rmdir}
_RENAMES |= {
    _pywrap_file_io.RenameFile,
    _pywrap_file_io.DeleteFile,
    _pywrap_file_io.DeleteRecursively,
}
_WRITES = {"write", "writelines", "open", "close", "CreateDir", "RecursivelyCreateDir"}
_PACKAGE = f"{os.path.dirname(official_bert.__file__)}{os.sep}"


class Point(NamedTuple):
    """The event of a kind before which a child kills itself, from 0."""

    kind: str
    number: int


class Ended(NamedTuple):
    """The end of a child: its exit status, negative for a signal, and its events by kind, none
    after a kill.
    """

    status: int
    sentence: str
    counts: dict[str, int]


def run(
    folder: pathlib.Path,
    command: list[str],
    point: Point | None = None,
    most_bytes: int | None = None,
) -> Ended:
    """Runs a script in a child, which kills itself before a point, or may write no file larger than
    `most_bytes`.

    The child counts its events: calls of this project's functions, and the calls that write, rename
    and delete files.
    """
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    child = context.Process(target=_child, args=(str(report), command, point, most_bytes))
    child.start()
    child.join(300)
    if child.is_alive():
        child.kill()
        child.join()
        raise AssertionError(f"{command[0]} hung after {point}")
    content = json.loads(report.read_text()) if report.exists() else {"sentence": "", "counts": {}}
    return Ended(child.exitcode, **content)


def _child(report: str, command: list[str], point: Point | None, most_bytes: int | None):
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    if most_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
    TimeLimit.clock = itertools.count().__next__
    counts = collections.Counter()
    one_at_a_time = threading.Lock()

    def watch(frame, event, function):
        with one_at_a_time:  # else two threads could both count on, past the point
            kind = _kind_of(frame, event, function, has_written=bool(counts[SAVE] + counts[RENAME]))
            if kind is None:
                return
            if point is not None and kind == point.kind and counts[kind] == point.number:
                os.kill(os.getpid(), signal.SIGKILL)
            counts[kind] += 1

    threading.setprofile(watch)  # of the thread that writes checkpoints
    sys.setprofile(watch)
    try:
        ended = end_of(*command)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    if most_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    pathlib.Path(report).write_text(json.dumps({"sentence": ended.sentence, "counts": counts}))
    os._exit(ended.status)


def _kind_of(frame, event: str, function, has_written: bool) -> str | None:
    """Returns the kind of an event; None for one that does not count."""
    code = frame.f_code
    if event == "call":
        if not code.co_filename.startswith(_PACKAGE):
            return None
        return RUN if has_written else START
    if event != "c_call":
        return None
    if function in _RENAMES:
        return RENAME
    is_save_op = function.__name__ == "TFE_Py_FastPathExecute" and code.co_name in (
        "save_v2",
        "merge_v2_checkpoints",
    )
    if is_save_op or (function.__name__ in _WRITES and code.co_filename.startswith(_PACKAGE)):
        return SAVE
    return None
