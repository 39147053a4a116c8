"""The options of a fine-tuning script that reads three data files: their folder, or the name of each."""

import dataclasses

from official_bert.options.fields import MIN_SEQ_LENGTH, SIZE, option
from official_bert.options.fine_tuning import FineTuningOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFilesOptions(FineTuningOptions):
    data_dir: str | None = option(
        None, help="The folder that holds the task's data files under their usual names."
    )
    train_file: str | None = option(None, help="The training file to read instead of the one in --data_dir.")
    dev_file: str | None = option(None, help="The development file to read instead of the one in --data_dir.")
    test_file: str | None = option(None, help="The test file to read instead of the one in --data_dir.")
    max_seq_length: int | None = option(
        otherwise=128,
        check=MIN_SEQ_LENGTH,
        help="The number of tokens, special ones included, of the longest input that the model is given. run_swag.py "
        "truncates longer examples, run_ner.py splits them.",
    )
    do_eval: bool = option(False, help="Evaluate the model on the development set.")
    eval_batch_size: int = option(8, check=SIZE, help="The number of examples in an evaluation batch.")

    def file(self, set_name: str) -> str | None:
        """The file that was given for the set train, dev or test; None for that in --data_dir."""
        return {"train": self.train_file, "dev": self.dev_file, "test": self.test_file}[set_name]
