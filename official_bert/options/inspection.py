"""The options of looking at pre-training records. Every field is a flag of inspect_pretraining_data.py."""

import dataclasses
from typing import ClassVar

from official_bert.options.fields import NOT_NEGATIVE, option
from official_bert.options.model_files import ModelOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectionOptions(ModelOptions):
    optional_files: ClassVar[tuple[str, ...]] = ()

    input_file: list[str] = option(
        help="The TFRecords of create_pretraining_data.py: files or glob patterns, separated by commas."
    )
    vocab_file: str | None = option(
        None, help="The vocabulary that the records were made with. It must be given unless --model is."
    )
    num_records: int = option(
        5, check=NOT_NEGATIVE, help="The number of records that the script prints as text."
    )
    max_records: int = option(
        100000,
        check=NOT_NEGATIVE,
        help="The number of records that the statistics are made of, the first ones. 0 means all.",
    )
    histogram_file: str | None = option(
        None,
        help="The PNG file to write, with the histograms of the lengths. Without this flag none is written.",
    )
