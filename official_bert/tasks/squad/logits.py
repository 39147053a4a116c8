"""The logits of a prediction as a file, and ensembles, which average those of several runs for the same windows."""

import io
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.reading import as_object
from official_bert.tasks.squad.answers import RawResult

# What numpy and zipfile raise for a file that is no archive of arrays, or a corrupt one. MemoryError: a header with
# the shape of terabytes; RuntimeError and NotImplementedError: an encrypted archive, or one of another compression.
_DAMAGES = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OSError,
    EOFError,
    MemoryError,
    RuntimeError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)


def write_logits(path: str, results: Sequence[RawResult], made_from: Mapping[str, object]):
    """Writes a file of logits, with the inputs and settings that they were made from."""
    unique_ids, start_logits, end_logits = zip(*results, strict=True) if results else ((), (), ())
    buffer = io.BytesIO()
    np.savez(
        buffer,
        unique_ids=np.array(unique_ids, np.int64),
        start_logits=np.array(start_logits, np.float32),
        end_logits=np.array(end_logits, np.float32),
        made_from=np.array(json.dumps(dict(made_from))),
    )
    with writing.replacing(path, "wb") as file:
        file.write(buffer.getvalue())


def read_logits(path: str, made_from: Mapping[str, object]) -> list[RawResult]:
    """Reads a file of logits, which must belong to the inputs and settings `made_from`."""
    with files.open_file(path, "rb") as file:
        content = file.read()
    try:
        with np.load(io.BytesIO(content)) as arrays:
            found = as_object(reading.parse_json(str(arrays["made_from"])), "made_from")
            columns = [arrays[name] for name in ("unique_ids", "start_logits", "end_logits")]
        _check_columns(*columns)
    except _DAMAGES as error:
        raise InputError(f"{path}: no file of logits ({_reason(error)}); predict again in its folder") from error
    differing = [name for name, value in made_from.items() if found.get(name) != value]
    if differing:
        raise InputError(
            f"{path}: its logits are of another {' and another '.join(differing)}; all runs of an ensemble have to "
            "predict the same file with the same vocabulary and settings"
        )
    return [RawResult(int(unique_id), start, end) for unique_id, start, end in zip(*columns, strict=True)]


def _check_columns(unique_ids: np.ndarray, start_logits: np.ndarray, end_logits: np.ndarray):
    """Validates that arrays are such as `write_logits` writes."""
    if unique_ids.ndim != 1 or unique_ids.dtype.kind not in "iu":
        raise ValueError("unique_ids must be whole numbers")
    for name, logits in (("start_logits", start_logits), ("end_logits", end_logits)):
        if (logits.ndim != 2 and len(unique_ids)) or len(logits) != len(unique_ids) or logits.dtype.kind != "f":
            raise ValueError(f"{name} must be numbers, one row for each of unique_ids")
        if not np.isfinite(logits).all():
            raise ValueError(f"{name} holds values that are not finite")


def _reason(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def average_results(runs: Sequence[Sequence[RawResult]]) -> list[RawResult]:
    """Averages the logits of several runs for each window, in the order of the first run."""
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
