"""What a run on SWAG or CODAH is told. Every field is a flag of run_swag.py."""

import dataclasses

from official_bert.options.data_files import DataFilesOptions
from official_bert.options.fields import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceOptions(DataFilesOptions):
    task_name: str = option(
        "swag",
        choices=("swag", "codah"),
        help="What the files are: swag (train.csv, val.csv, test.csv in --data_dir) or codah (train.tsv, dev.tsv, "
        "test.tsv).",
    )
