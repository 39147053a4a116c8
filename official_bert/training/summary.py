"""The summary of a training at its end: a table in the log, and a line of output_dir/run_summaries.jsonl.

In: the figures of one process. Out: these, with the totals over all processes that trained in the folder. A process
that is killed leaves no line; runs.jsonl counts it among the restarts.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping

from absl import logging

from official_bert import writing
from official_bert.errors import InputError
from official_bert.progress import clock_time
from official_bert.training import run_records
from official_bert.training.reporting import log_table

FILE = "run_summaries.jsonl"
FINISHED, STOPPED_EARLY = "finished", "stopped early"


def write_summary(output_dir: str, figures: Mapping[str, float | str | None]):
    """Logs the table and appends the line; a full disk costs the line and not the run.

    Args:
        output_dir: the output folder of the run.
        figures: of this process: `ended` (FINISHED, STOPPED_EARLY or the name of what stopped it), `last_step`,
            `updates`, `wall_secs`, and others by name; None for an unknown one, which is left out.
    """
    path = os.path.join(output_dir, FILE)
    earlier_secs = sum(row.get("wall_secs", 0.0) for row in run_records.rows(path))
    starts = run_records.trainings(output_dir)
    known = {name: value for name, value in figures.items() if value is not None}
    known |= {"restarts": max(0, len(starts) - 1), "total_wall_secs": earlier_secs + known["wall_secs"]}
    log_table("Training summary", {name: _text(name, value) for name, value in known.items()})
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in known.items()
    }
    try:
        writing.append_line(path, json.dumps(finite))
    except (InputError, OSError) as error:
        logging.warning("%s: the summary is only in the log (%s)", path, error)


def _text(name: str, value: float | str) -> str:
    if isinstance(value, str):
        return value
    if name.endswith("_secs"):
        return clock_time(value)
    if name == "mfu":
        return f"{value:.1%}"
    return str(value) if isinstance(value, int) else f"{value:.5g}"
