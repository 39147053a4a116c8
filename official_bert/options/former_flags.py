"""Recorded flags of earlier versions, as the flags of today.

In: the flags of a run by name, as run.jsonl or search.json records them.
Out: the same, where each flag whose value had a language of its own is replaced by plain flags.
"""

from collections.abc import Mapping, Sequence
from typing import Any

# The settings in a value of the former flag --columns, and the flags that replace them.
_COLUMN_FLAGS = {
    "text_a": "text_a_column",
    "text_b": "text_b_column",
    "anchor": "anchor_column",
    "positive": "positive_column",
    "negative": "negative_columns",
    "label": "label_column",
    "header": "has_header",
    "separator": "label_separator",
}


def upgrade_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return recorded flags under the names and with the values of this version.

    Args:
        flags: the flags of a run by name, of this version or of an earlier one.
    """
    upgraded = dict(flags)
    if "columns" in upgraded:
        columns = upgraded.pop("columns")
        upgraded |= _upgrade_columns(str(columns or ""))
    ramp = upgraded.get("train_batch_size_ramp")
    if ramp is not None and is_former_ramp(ramp):
        sizes = []
        shares = []
        for part in ramp:
            size, _, share = part.partition(":")
            sizes.append(size)
            shares.append(share)
        upgraded["train_batch_size_ramp"] = sizes
        upgraded["train_batch_size_boundaries"] = shares
    threshold = upgraded.get("null_score_diff_threshold")
    if isinstance(threshold, str) and threshold.startswith("auto:"):
        upgraded["null_score_diff_threshold"] = "auto"
        upgraded["null_score_diff_file"] = threshold.removeprefix("auto:")
    return upgraded


def is_former_ramp(ramp: Sequence[str]) -> bool:
    """Return whether a value of --train_batch_size_ramp has the former form `size:share`.

    Args:
        ramp: the elements of the value.
    """
    return any(":" in part for part in ramp)


def _upgrade_columns(columns: str) -> dict[str, Any]:
    """Returns the flags that mean the same as a value of --columns: `name=value,name=value`.

    A value may have commas.
    """
    flags: dict[str, Any] = {"has_header": True, "label_separator": ","}
    name = ""
    for part in columns.split(","):
        setting, equals, value = part.partition("=")
        if equals and setting.strip() in _COLUMN_FLAGS:
            name = _COLUMN_FLAGS[setting.strip()]
            flags[name] = value
        elif name:
            flags[name] += f",{part}"
    if "negative_columns" in flags:
        names = flags["negative_columns"]
        flags["negative_columns"] = names.split(",") if names else []
    flags["has_header"] = flags["has_header"] in (True, "true")
    return flags
