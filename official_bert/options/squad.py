"""The options of a SQuAD run. Every field is a flag of run_squad.py."""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

from official_bert.options.fields import LENGTH, LENGTH_OR_NONE, option
from official_bert.options.fine_tuning import FineTuningOptions

AUTO = "auto"


def _is_threshold(text: str) -> bool:
    try:
        return text == AUTO or not math.isnan(float(text))
    except ValueError:
        return False


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadOptions(FineTuningOptions):
    # The script has no evaluation of its own: the answers to --predict_file are scored if it has the true ones.
    scoring_flags: ClassVar[Mapping[str, bool]] = {"do_predict": True}
    development_set: ClassVar[str] = "test"
    large_files: ClassVar[tuple[str, ...]] = (*FineTuningOptions.large_files, "*logits.npz")
    data_dir: ClassVar[None] = None
    do_eval: ClassVar[bool] = False

    train_file: str | None = option(
        None, help="The questions to train on: a JSON file in SQuAD's format, such as train-v2.0.json."
    )
    predict_file: str | None = option(
        None, help="The questions to answer: a JSON file in SQuAD's format, such as dev-v2.0.json."
    )
    max_seq_length: int | None = option(
        otherwise=384,
        check=LENGTH,
        help="The number of tokens of a window together with its question and the special tokens.",
    )
    doc_stride: int = option(
        128,
        check=LENGTH,
        help="The number of tokens from the start of a window of a long document to the start of the next.",
    )
    max_query_length: int = option(
        64,
        check=LENGTH_OR_NONE,
        help="The number of tokens of a question that are kept. Longer questions are truncated.",
    )
    n_best_size: int = option(
        20,
        check=LENGTH,
        help="The number of answers in nbest_predictions.json for each question, and of start positions and of end "
        "positions that are considered in each window.",
    )
    max_answer_length: int = option(30, check=LENGTH, help="The number of tokens of the longest answer.")
    verbose_logging: bool = option(
        False, help="Log every answer whose text could not be located in the words of the document."
    )
    version_2_with_negative: bool = option(False, help="Let a question have no answer, as in SQuAD 2.0.")
    null_score_diff_threshold: str = option(
        "0.0",
        check=(_is_threshold, f"must be a number or {AUTO}"),
        help="The null odds above which a question of SQuAD 2.0 is left unanswered. auto takes the threshold with "
        "the best F1 on --threshold_file.",
    )
    threshold_file: str | None = option(
        None,
        help="The questions with answers on which --null_score_diff_threshold=auto tunes the threshold, in SQuAD's "
        "format. Without this flag it is tuned on --predict_file itself.",
    )
    ensemble_dirs: list[str] | None = option(
        None,
        help="The --output_dir folders of several runs that predicted the same files, separated by commas. The "
        "script averages their logits instead of running a model.",
    )
    length_aware_batches: bool = option(
        False,
        help="Pad a prediction batch to its longest window instead of --max_seq_length, except on a TPU. That is "
        "faster, but since the original ranks padding positions too, the last n-best entries may differ.",
    )

    @property
    def eval_batch_size(self) -> int:
        """Of evaluations during training."""
        return self.predict_batch_size

    def file(self, set_name: str) -> str | None:
        """The file that was given for the set train or test."""
        return self.train_file if set_name == "train" else self.predict_file
