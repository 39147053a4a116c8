"""The options of a run on SWAG or CODAH. Every field is a flag of run_swag.py."""

import dataclasses

from official_bert.options.data_files import DataFilesOptions
from official_bert.options.fields import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceOptions(DataFilesOptions):
    task_name: str = option(
        "swag",
        choices=("swag", "codah"),
        help="The data set: swag reads train.csv, val.csv and test.csv of --data_dir; codah reads train.tsv, dev.tsv "
        "and test.tsv.",
    )
