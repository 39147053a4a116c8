"""The data sets of a mixture in memory: the argument `data_sets` of SentenceEncoder.train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from official_bert.data.text_tables import Example, make_examples
from official_bert.extensions.mixtures.declarations import FILE_FLAGS
from official_bert.io.errors import InputError

_FIELDS = ("texts", "labels", "dev")
# What the declaration of a set in memory has in place of the paths of its files.
_MEMORY_SOURCE = "in memory"


def load_data_sets(
    data_sets: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, dict[str, list[Example]]], dict[str, Any]]:
    """Return the examples of data sets in memory, and the value of the flag that declares them.

    Args:
        data_sets: the fields of each set by its name: `texts`, `labels`, `dev`, and flags.

    Returns:
        The examples of the sets train and dev, each by the name of its data set; and the flag
        data_sets, which has the flags of each set.

    Raises:
        InputError: a set has no texts, or an example is none.
    """
    if not isinstance(data_sets, Mapping) or not data_sets:
        raise InputError("data_sets: must be a dict with a name and fields for each set")
    examples: dict[str, dict[str, list[Example]]] = {}
    declarations = {}
    for name, fields in data_sets.items():
        place = f"data_sets: {name}"
        if not isinstance(fields, Mapping):
            raise InputError(f"{place}: must be a dict, such as {{'texts': pairs}}")
        set_examples = _make_examples(place, fields)
        declaration = dict(fields)
        for field in _FIELDS:
            declaration.pop(field, None)
        for flag in FILE_FLAGS:
            if flag in declaration:
                raise InputError(f"{place}: {flag}: is for files; give texts and dev")
        for set_name, rows in set_examples.items():
            examples.setdefault(set_name, {})
            examples[set_name][name] = rows
            declaration[f"{set_name}_file"] = _MEMORY_SOURCE
        declarations[name] = declaration
    if "train" not in examples:
        raise InputError("data_sets: no set has texts; give them to one")
    return examples, {"data_sets": declarations}


def _make_examples(place: str, fields: Mapping[str, Any]) -> dict[str, list[Example]]:
    """Returns the examples of a data set: of train, of dev, or of both."""
    examples = {}
    texts = fields.get("texts")
    if texts is not None:
        examples["train"] = make_examples(
            texts,
            fields.get("labels"),
            f"{place}: texts",
        )
    dev = fields.get("dev")
    if dev is not None:
        dev_texts, dev_labels = dev if isinstance(dev, tuple) else (dev, None)
        examples["dev"] = make_examples(
            dev_texts,
            dev_labels,
            f"{place}: dev",
        )
    return examples
