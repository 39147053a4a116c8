"""What an export is told. Every field is a flag of export_saved_model.py."""

import dataclasses
import math

from official_bert.options.fields import MIN_SEQ_LENGTH, NOT_NEGATIVE, POSITIVE, option
from official_bert.options.fine_tuning import EXPORT_TEXT


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions:
    task_name: str = option(
        help="What the checkpoint does: a task of run_classifier.py (CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, "
        "WNLI, AX, XNLI, tsv), squad, swag, codah, ner, pretraining for the vectors and masked words of a "
        "pre-trained model, or module:Class, a task of your own."
    )
    export_dir: str = option(
        help="Folder that a server watches: the export becomes the folder of the next version number in it."
    )
    init_checkpoint: str = option(
        help="The checkpoint: an output_dir of a training script, a TF1 checkpoint prefix or folder, or a Hugging "
        "Face folder."
    )
    bert_config_file: str = option(
        help="The config json file of the model: the original's bert_config.json or a Hugging Face config.json."
    )
    vocab_file: str = option(help="The vocabulary file that the BERT model was trained on.")
    do_lower_case: bool = option(
        True, help="Whether to lower case the input text: True for uncased models, False for cased ones."
    )
    strip_accents: bool | None = option(
        None, help="Whether to strip accents; as --do_lower_case when not given, like the original."
    )
    max_seq_length: int = option(
        128,
        check=MIN_SEQ_LENGTH,
        help="Length in WordPiece tokens that text is cut to, as in training; requests of tensors may have any "
        "that the model has positions for.",
    )
    labels: list[str] | None = option(
        None, help="tsv, ner: all labels, separated by commas; read beside the checkpoint when not given."
    )
    multi_label: bool = option(False, help="tsv: whether an example may have several labels.")
    regression: bool = option(False, help="tsv: whether the label is a score.")
    export_text: bool = option(False, help=EXPORT_TEXT)
    doc_stride: int = option(
        128,
        check=POSITIVE,
        help="squad: from the start of a window of a long context to the next, in tokens.",
    )
    max_query_length: int = option(
        64, check=NOT_NEGATIVE, help="squad: tokens of a question that are kept; longer questions are cut."
    )
    n_best_size: int = option(20, check=POSITIVE, help="squad: starts and ends that are tried in a window.")
    max_answer_length: int = option(30, check=POSITIVE, help="squad: the most tokens of an answer.")
    version_2_with_negative: bool = option(
        False, help="squad: whether some questions have no answer, as in SQuAD 2.0."
    )
    null_score_diff_threshold: float = option(
        0.0,
        check=(lambda odds: not math.isnan(odds), "must be a number"),
        help="squad: null odds above which a question is left unanswered, as eval_results.txt of a run with "
        "--null_score_diff_threshold=auto has them.",
    )
    length_aware_batches: bool = option(
        False,
        help="squad with --export_text: whether a request is padded to its longest window instead of --max_seq_length. "
        "Faster, but the script ranks padding, too: rare answers may differ.",
    )
