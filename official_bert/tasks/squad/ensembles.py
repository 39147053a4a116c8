"""Ensembles: averages the logits of several runs for the same windows."""

from collections.abc import Sequence

import numpy as np

from official_bert.errors import InputError
from official_bert.tasks.squad.answers import RawResult


def average_results(runs: Sequence[Sequence[RawResult]]) -> list[RawResult]:
    """Averages the logits of several runs for each window, in the order of the first run.

    Args:
        runs: the results of each run for the same windows, in any order.

    Raises:
        InputError: there is no run, or the runs have results for different windows.
    """
    if not runs:
        raise InputError("an ensemble needs the results of at least one run")
    first, *others = ({result.unique_id: result for result in run} for run in runs)
    for number, other in enumerate(others, 2):
        if other.keys() != first.keys():
            raise InputError(
                f"run {number} of the ensemble has results for other windows than run 1; predict the same file "
                "with the same vocabulary, lengths and stride in all runs"
            )
    averaged = []
    for unique_id in first:
        members = [run[unique_id] for run in (first, *others)]
        lengths = {len(logits) for member in members for logits in member[1:]}
        if len(lengths) > 1:
            raise InputError(
                f"the ensemble's results for window {unique_id} are of lengths {sorted(lengths)}; predict with "
                "the same --max_seq_length in all runs"
            )
        start, end = (np.mean([member[kind] for member in members], axis=0, dtype=float) for kind in (1, 2))
        averaged.append(RawResult(unique_id, start, end))
    return averaged
