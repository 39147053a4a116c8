"""The settings of a task: its flags in a run, or what task.json and the record of an export say.

Each family of tasks extends `TaskSettings` with a field for each flag that it reads. The same class
reads the values of a run or of a record and writes the values that a record keeps.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

_IS_RECORDED = "is_recorded"


def recorded(default: Any = None) -> Any:
    """Returns a field of settings that task.json and the record of an export keep.

    Args:
        default: the value if neither a flag nor a record has one.
    """
    return dataclasses.field(default=default, metadata={_IS_RECORDED: True})


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """The settings of a task that names no class of its own; the fields are named like the flags.

    Attributes:
        values: the values of all flags and of the record by flag name. A task outside this package
            may read its own settings here.
        do_train: whether the run trains the model; its record then no longer counts.
    """

    values: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False, compare=False)
    do_train: bool = False

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """Reads settings. Fields without a value have their defaults; values without a field
        remain in `values` only.

        Args:
            values: values by flag name, of the flags of a script, of a record, or of both.
        """
        fields = {}
        for field in dataclasses.fields(cls):
            if field.name != "values" and field.name in values:
                fields[field.name] = values[field.name]
        return cls(values=values, **fields)

    def to_record(self) -> dict[str, Any]:
        """Returns the settings that a record keeps, as JSON values by flag name; a field of None
        is left out.
        """
        record = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if _IS_RECORDED in field.metadata and value is not None:
                record[field.name] = value
        return record
