"""Finds the Hugging Face models that compute what a BERT computes, under other names.

In: the content of a config.json. Out: the ModelType that its `model_type` names. The core has none:
extensions add them by the hook `model_types`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from official_bert import catalog

BERT = "bert"
Fields = Mapping[str, Any]  # the content of a config.json


class ModelType(NamedTuple):
    """A kind of Hugging Face models that can be loaded as BERT.

    Attributes:
        read_fields: the content of a config.json -> the content of the config.json of a BERT that
            computes the same outputs. It may have a field `pooler_act`.
        rename_weight: the name of a tensor in the files -> its name in the files of a BERT.
        zero_tables: name, in the files of a BERT, of each table of embeddings that the files lack
            because its rows would be zero -> its number of rows.
    """

    read_fields: Callable[[Fields], Fields]
    rename_weight: Callable[[str], str]
    zero_tables: Mapping[str, int]


def list_names() -> list[str]:
    """Returns the values of `model_type` that can be loaded, that of BERT first."""
    other_types = catalog.members("model_types")
    return [BERT, *other_types]


def find(fields: object) -> ModelType | None:
    """Returns the type of a model; None for a BERT, for a type that cannot be loaded, or for none.

    Args:
        fields: the content of a config.json.
    """
    if not isinstance(fields, dict):
        return None
    name = fields.get("model_type")
    if not isinstance(name, str):
        return None
    other_types = catalog.members("model_types")
    return other_types.get(name)


def to_bert_fields(fields: Any) -> Any:
    """Returns the content of the config.json of a BERT that computes the same outputs.

    Args:
        fields: the content of a config.json. That of a BERT, or of a file that describes no model,
            is returned as it is.
    """
    model_type = find(fields)
    if model_type is None:
        return fields
    return model_type.read_fields(fields)
