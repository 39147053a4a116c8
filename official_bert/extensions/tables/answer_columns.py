"""The columns that the answer to a request adds to its row."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from official_bert.io.errors import InputError

PROBABILITY = "probability"
ERROR = "error"
_TAKEN_PREFIX = "predicted_"


def make_columns(answer: Mapping[str, Any], all_probabilities: bool) -> dict[str, Any]:
    """Returns the columns of an answer by name.

    The mapping or the list `probabilities` becomes the column `probability`, that of the
    prediction. A model of several labels has none. The answer of a head, such as `intent`, becomes
    columns such as `intent_label`.

    Args:
        answer: the answer of a Predictor.
        all_probabilities: whether each label has a column, such as `probability_spam`.

    Raises:
        InputError: a number is not finite.
    """
    columns: dict[str, Any] = {}
    for name, value in answer.items():
        if name == "probabilities":
            continue
        if isinstance(value, Mapping):
            columns |= _make_head_columns(name, value, all_probabilities)
        else:
            columns[name] = value
    probabilities = answer.get("probabilities")
    if isinstance(probabilities, list):
        probabilities = dict(enumerate(probabilities))
    if isinstance(probabilities, Mapping):
        _check_finite(probabilities.values())
        if "labels" not in answer and probabilities:
            columns[PROBABILITY] = max(probabilities.values())
        if all_probabilities:
            for label, probability in probabilities.items():
                columns[f"{PROBABILITY}_{label}"] = probability
    _check_finite(columns.values())
    return columns


def _make_head_columns(
    head: str, answer: Mapping[str, Any], all_probabilities: bool
) -> dict[str, Any]:
    """Returns the columns of the answer of a head."""
    columns = make_columns(answer, all_probabilities)
    columns.pop("truncated", None)  # which only some answers have
    return {f"{head}_{column}": value for column, value in columns.items()}


def _check_finite(values: Iterable[Any]):
    """Raises InputError for a number that is not finite."""
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(
                "the model gives numbers that are not finite; its checkpoint is corrupt, or its "
                "training diverged"
            )


def choose_names(columns: Iterable[str], names: Sequence[str], path: str) -> dict[str, str]:
    """Returns the names of added columns in a table, by column.

    A column whose name the table has gets a prefix, as in `predicted_label`.

    Args:
        columns: the columns of the answers.
        names: the names of the columns of the table.
        path: the table, for the error.

    Raises:
        InputError: the table has the name with the prefix, too.
    """
    new_names = {}
    for column in columns:
        name = column
        if name in names:
            name = f"{_TAKEN_PREFIX}{column}"
        if name in names:
            raise InputError(
                f"{path}: has the columns {column} and {name}, so that the predictions have no "
                "name; rename one of the two"
            )
        new_names[column] = name
    return new_names


def format_cell(value: Any) -> str:
    """Returns the text of a value in TSV or CSV.

    Labels without commas are separated by commas. Other lists, and mappings, are JSON.

    Args:
        value: the value: that of a column of the input, or of an answer.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and all(_is_plain_label(element) for element in value):
        return ",".join(value)
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _is_plain_label(value: Any) -> bool:
    return isinstance(value, str) and "," not in value and value == value.strip() != ""
