"""The settings of run_classifier.py and of the record of a classifier."""

import dataclasses
from collections.abc import Mapping, Sequence

from official_bert.tasks.settings import TaskSettings, recorded


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationSettings(TaskSettings):
    """The settings of a classifier or a regression. `--help` explains the fields that are flags.

    Attributes:
        num_texts: 1 or 2 texts for each example; None if an example may be a text or a pair.
        temperature: the divisor of the logits before probabilities are computed; None for 1.
        columns: role -> the name of its column in the training tables, or its number where they
            name no columns; "" for no column.
        checkpoint_labels: the labels of the checkpoint that the run starts from; None if unknown.
    """

    label_type: str | None = recorded()
    abstain_below: float | None = recorded()
    temperature: float | None = recorded()
    long_texts: str | None = recorded()
    doc_stride: int | None = recorded()
    pooling: str | None = recorded()
    columns: Mapping[str, str] | None = recorded()
    has_header: bool | None = recorded()
    quoting: str | None = recorded()
    num_texts: int | None = None
    task_name: str | None = None
    labels: Sequence[str] | None = None
    checkpoint_labels: Sequence[str] | None = None
    text_a_column: str | None = None
    text_b_column: str | None = None
    label_column: str | None = None
    label_separator: str = ","
    data_format: str | None = None
    class_weights: Sequence[str] | None = None
    calibrate: bool = False

    @property
    def is_export(self) -> bool:
        """Whether the settings are those of an export, which reads no tables."""
        return "do_train" not in self.values
