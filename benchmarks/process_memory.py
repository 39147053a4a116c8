"""Measures the memory of processes, on Linux."""

import pathlib
import re


def tree_mb(pid: int) -> float:
    """Returns the proportional memory (PSS) of a process and all its descendants, in megabytes."""
    total_kb, waiting = 0, [pid]
    while waiting:
        process = pathlib.Path("/proc", str(waiting.pop()))
        try:
            total_kb += int(
                re.search(
                    r"^Pss:\s+(\d+)", (process / "smaps_rollup").read_text(), re.MULTILINE
                ).group(1)
            )
            for task in (process / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (OSError, AttributeError):  # the process has just ended
            continue
    return total_kb * 1024 / 1e6
