"""Which columns of a table have the texts of a request: those of the training, or usual names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from official_bert.data.column_roles import Columns, Role, decide_columns, fold_name
from official_bert.data.table_formats import parse_text
from official_bert.data.tables import Row
from official_bert.io.errors import InputError
from official_bert.tasks.classification.text import check_columns

if TYPE_CHECKING:
    from official_bert.serving.predictor import Predictor

FLAG = "text_columns"
# Column of a request -> the usual names of its column in a table.
_USUAL_NAMES = {
    "text_a": ("text", "text_a", "sentence", "sentence1"),
    "text_b": ("text_b", "sentence2"),
    "text": ("text", "sentence"),
}


def known_names(predictor: Predictor, column: str) -> set[str]:
    """Returns the folded names by which a column of a table is known.

    Args:
        predictor: the model, whose record may have the column of the training.
        column: the column of a request.
    """
    names = {fold_name(name) for name in _list_usual_names(column)}
    training_columns = _read_training_columns(predictor)
    if column in training_columns:
        names.add(fold_name(training_columns[column]))
    return names


def decide_text_columns(
    predictor: Predictor,
    path: str,
    names: Sequence[str],
    has_names: bool = True,
    text_columns: Sequence[str] | None = None,
    flag: str | None = FLAG,
) -> Columns:
    """Decides the columns of the texts of a request, and logs them.

    Args:
        predictor: the model.
        path: the table, for messages.
        names: the names of its columns.
        has_names: whether the file names its columns.
        text_columns: the columns that the user names, in the order of the model's texts.
        flag: the flag that names columns, for messages; None without one.

    Raises:
        InputError: a column is missing, or could be one of several.
    """
    text_columns = text_columns or []
    if len(text_columns) > len(predictor.columns):
        raise InputError(
            f"--{FLAG}={','.join(text_columns)}: names {len(text_columns)} columns, and the model "
            f"reads {', '.join(predictor.columns)}; leave the others out"
        )
    roles = [
        Role(
            column,
            _list_usual_names(column),
            is_required=number < predictor.num_required,
            position=number,
            can_be_guessed=column in _USUAL_NAMES,
            flag=flag,
        )
        for number, column in enumerate(predictor.columns)
    ]
    training_columns = _read_training_columns(predictor)
    folded_names = {fold_name(name) for name in names}
    assigned = {
        role: column
        for role, column in training_columns.items()
        if role in predictor.columns and (fold_name(column) in folded_names or not column)
    }
    assigned |= dict(zip(predictor.columns, text_columns, strict=False))
    columns = decide_columns(
        path=path,
        names=names if has_names else [],
        roles=roles,
        assigned=assigned,
        width=len(names),
    )
    remedy = f"name that of the text, --{flag}=..." if flag else "rename that of the text"
    columns.refuse_guesses(training_columns, remedy)
    return columns


def read_texts(
    predictor: Predictor, row: Row, record: Mapping[str, Any], columns: Columns
) -> Sequence[str]:
    """Returns the texts of the request in a row; an optional text may be missing.

    Args:
        predictor: the model.
        row: the row, for errors.
        record: its values by the name of the column.
        columns: the columns of the texts.

    Raises:
        InputError: a text is missing, or not a text.
    """
    texts = []
    for number, column in enumerate(predictor.columns):
        name = columns.column_name(column)
        if name is None:
            break
        value = record[name]
        if value in (None, "") and number >= predictor.num_required:
            break
        texts.append(parse_text(row, value, name))
    return texts


def _list_usual_names(column: str) -> tuple[str, ...]:
    return _USUAL_NAMES.get(column, (column,))


def _read_training_columns(predictor: Predictor) -> dict[str, str]:
    return check_columns(predictor.model.record.settings.get("columns"))
