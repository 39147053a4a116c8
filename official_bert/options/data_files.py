"""What a fine-tuning script is told of its three data files: a folder, or each by its name."""

import dataclasses

from official_bert.options.fields import MIN_SEQ_LENGTH, POSITIVE, option
from official_bert.options.fine_tuning import FineTuningOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFilesOptions(FineTuningOptions):
    data_dir: str | None = option(
        None, help="The input data folder, with the task's files under their names."
    )
    train_file: str | None = option(None, help="The training file, instead of that of --data_dir.")
    dev_file: str | None = option(None, help="The development file, instead of that of --data_dir.")
    test_file: str | None = option(None, help="The test file, instead of that of --data_dir.")
    max_seq_length: int = option(
        128,
        check=MIN_SEQ_LENGTH,
        help="Maximum input length in WordPiece tokens; longer inputs are cut.",
    )
    do_eval: bool = option(False, help="Whether to run evaluation on the dev set.")
    eval_batch_size: int = option(8, check=POSITIVE, help="Examples in one evaluation batch.")

    def file(self, set_name: str) -> str | None:
        """The file that was given for the set train, dev or test; None for that in --data_dir."""
        return {"train": self.train_file, "dev": self.dev_file, "test": self.test_file}[set_name]
