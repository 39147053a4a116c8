"""What a SQuAD run is told. Every field is a flag of run_squad.py."""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

from official_bert.options.fields import NOT_NEGATIVE, POSITIVE, option
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
    data_dir: ClassVar[None] = None
    do_eval: ClassVar[bool] = False

    train_file: str | None = option(None, help="SQuAD json for training, such as train-v1.1.json.")
    predict_file: str | None = option(
        None, help="SQuAD json for predictions, such as dev-v1.1.json or test-v1.1.json."
    )
    max_seq_length: int = option(
        384, check=POSITIVE, help="Length of a window with its question, in WordPiece tokens."
    )
    doc_stride: int = option(
        128, check=POSITIVE, help="From the start of a window of a long document to the next, in tokens."
    )
    max_query_length: int = option(
        64, check=NOT_NEGATIVE, help="Tokens of a question that are kept; longer questions are cut."
    )
    n_best_size: int = option(20, check=POSITIVE, help="Entries of a question in nbest_predictions.json.")
    max_answer_length: int = option(30, check=POSITIVE, help="The most tokens of an answer.")
    verbose_logging: bool = option(
        False, help="Whether to log answers that could not be cut out of their words."
    )
    version_2_with_negative: bool = option(
        False, help="Whether some questions have no answer, as in SQuAD 2.0."
    )
    null_score_diff_threshold: str = option(
        "0.0",
        check=(_is_threshold, f"must be a number or {AUTO}"),
        help="SQuAD 2.0: null odds above which a question is left unanswered; auto takes the threshold of the best F1 "
        "on --threshold_file.",
    )
    threshold_file: str | None = option(
        None,
        help="SQuAD json with answers that --null_score_diff_threshold=auto is tuned on; the predicted file itself "
        "when not given.",
    )
    ensemble_dirs: list[str] | None = option(
        None,
        help="Output folders of runs that predicted the same files, separated by commas: their logits are averaged, "
        "and no model is run.",
    )
    length_aware_batches: bool = option(
        False,
        help="Whether a prediction batch is padded to its longest window instead of --max_seq_length (never on TPU). "
        "Faster, but the original ranks padding, too: rear n-best entries may differ.",
    )

    @property
    def eval_batch_size(self) -> int:
        """Of evaluations during training."""
        return self.predict_batch_size

    def file(self, set_name: str) -> str | None:
        """The file that was given for the set train or test."""
        return self.train_file if set_name == "train" else self.predict_file
