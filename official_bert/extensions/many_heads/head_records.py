"""The records of the heads in the record of an export, `assets.extra/export.json`.

Its `settings` have two fields of this extension. `heads` has the record of each head by name, as an
export of its own has it, with its labels. `shared_encoders` lists which heads share the computation
of an encoder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from official_bert.io.errors import InputError
from official_bert.io.reading import field
from official_bert.model_dir import summarize_labels
from official_bert.serving.exported_model import RECORD_FILE, Record

if TYPE_CHECKING:
    from official_bert.serving.model import BatchedModel

FAMILY = "heads"  # the task of an export of many heads, and its family
HEADS = "heads"
SHARED_ENCODERS = "shared_encoders"
LABEL_NAMES = "label_names"
# The names of the texts of a request.
FIRST_TEXT, SECOND_TEXT = "text_a", "text_b"


class HeadRecord(NamedTuple):
    """What an export records about a head.

    Attributes:
        record: the record that an export of the head alone would have.
        labels: its labels in the order of its outputs; None if its task has none.
    """

    record: Record
    labels: list[str] | None


def make_head_record(record: Record, labels: Sequence[str] | None) -> dict[str, Any]:
    """Returns the JSON values of a head.

    Args:
        record: the record that an export of the head alone would have.
        labels: its labels; None if its task has none.
    """
    return {**record._asdict(), LABEL_NAMES: list(labels) if labels else None}


def has_heads(model: BatchedModel) -> bool:
    """Returns whether a model is an export of many heads.

    Args:
        model: the opened model.
    """
    return model.record.family == FAMILY


def read_head_records(model: BatchedModel) -> dict[str, HeadRecord]:
    """Reads the records of the heads of an export.

    Args:
        model: the opened export.

    Returns:
        The records by the names of the heads.

    Raises:
        InputError: a field is missing, or contradicts the outputs of the model.
    """
    source = f"{os.path.join(model.path, RECORD_FILE)}: settings"
    contents = field(model.record.settings, HEADS, dict, source)
    if not contents:
        raise InputError(f"{source}: {HEADS} has no head; put the export's own file back")
    heads = {}
    for name, content in contents.items():
        heads[name] = _read_head(content, f"{source}: {HEADS}: {name}")
        if not any(output.startswith(f"{name}/") for output in model.outputs):
            raise InputError(
                f"{source}: {HEADS}: the model has no outputs of {name}; put the export's own file "
                "back"
            )
    return heads


def _read_head(content: Mapping[str, Any], source: str) -> HeadRecord:
    record = Record.from_content(content, source)
    labels = content.get(LABEL_NAMES)
    if labels is not None and not _is_text_list(labels):
        raise InputError(f"{source}: {LABEL_NAMES} must be a list of texts; export the heads again")
    if record.labels != summarize_labels(labels):
        raise InputError(
            f"{source}: {LABEL_NAMES} are not those of the export; put the export's own file back"
        )
    return HeadRecord(record, labels)


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
