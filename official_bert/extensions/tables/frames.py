"""Frames of pandas in and out: the hook `predictor_frame`. pandas itself is not imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from official_bert.data.tables import Row, plain_value
from official_bert.extensions.tables.answer_columns import choose_names, make_columns
from official_bert.extensions.tables.text_columns import decide_text_columns, read_texts
from official_bert.io.errors import InputError
from official_bert.serving.predictor import RequestFrame

if TYPE_CHECKING:
    from official_bert.serving.predictor import Predictor

_NAME = "the frame"
# Method of a model -> the column of its answers that are lists.
_LIST_COLUMNS = {"tag": "entities", "fill_mask": "masks", "classify": "labels"}


def split_frame(predictor: Predictor, texts: Sequence) -> RequestFrame | None:
    """Returns the requests of a frame; None if the arguments are no frame.

    Args:
        predictor: the model.
        texts: the arguments of a call.

    Raises:
        InputError: the frame lacks a column, or a row has no text.
    """
    if len(texts) != 1 or not (hasattr(texts[0], "columns") and hasattr(texts[0], "assign")):
        return None
    frame = texts[0]
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise InputError(f"{_NAME}: names a column twice; rename one of them")
    columns = decide_text_columns(predictor, _NAME, names, flag=None)
    requests = []
    for number, values in enumerate(frame.itertuples(index=False, name=None)):
        row = Row(_NAME, number, [], "row")
        record = dict(zip(names, plain_value(values), strict=True))
        requests.append(read_texts(predictor, row, record, columns))

    def add_answers(answers: Sequence) -> Any:
        rows = [_list_columns(predictor, answer) for answer in answers]
        all_columns = dict.fromkeys(column for row in rows for column in row)
        new_names = choose_names(all_columns, names, _NAME)
        new_columns = {
            new_names[column]: [row.get(column) for row in rows] for column in all_columns
        }
        return frame.assign(**new_columns)

    return RequestFrame(requests, add_answers)


def _list_columns(predictor: Predictor, answer: Any) -> dict[str, Any]:
    """Returns the columns of an answer: its fields, or one for a list."""
    if isinstance(answer, dict):
        return make_columns(answer, all_probabilities=True)
    return {_LIST_COLUMNS.get(predictor.method, predictor.method): answer}
