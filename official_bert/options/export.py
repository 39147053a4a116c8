"""The options of an export. Every field is a flag of export_saved_model.py."""

import dataclasses
import math

from official_bert.options.extraction import POOLINGS
from official_bert.options.fields import LENGTH, LENGTH_OR_NONE, MIN_SEQ_LENGTH, SIZE, option
from official_bert.options.fine_tuning import EXPORT_TEXT
from official_bert.options.model_files import CHECKPOINT_FORMS, ConfigOptions, TokenizerOptions
from official_bert.options.precision import EXPORT_DTYPE, EXPORT_DTYPES, FLOAT32
from official_bert.options.tagging import DEFAULT_BILSTM_SIZE, FEATURE_LAYERS


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions(ConfigOptions, TokenizerOptions):
    task_name: str | None = option(
        None,
        help="The task that the checkpoint was trained on: a task of run_classifier.py (CoLA, SST-2, MRPC, STS-B, "
        "QQP, MNLI, QNLI, RTE, WNLI, AX, XNLI, tsv), squad, swag, codah or ner; pretraining for the vectors and the "
        "masked words of a pre-trained model; embedding for one vector of a text; or module:Class for a task of your "
        "own. Without this flag the folder of the checkpoint says what it was trained on.",
    )
    export_dir: str = option(
        help="The folder that the model server watches. The export becomes a folder in it, named with the next "
        "version number."
    )
    init_checkpoint: str | None = option(
        None, help=f"The checkpoint to export: {CHECKPOINT_FORMS}. It must be given unless --model is."
    )
    max_seq_length: int | None = option(
        otherwise=128,
        check=MIN_SEQ_LENGTH,
        help="The number of tokens, special ones included, to which the export truncates text. Without this flag "
        "it is the length of the training. Requests that hold token ids may be as long as the model has positions.",
    )
    labels: list[str] | None = option(
        None,
        help="The labels of tsv or ner, separated by commas. Without this flag the script reads those that training "
        "wrote beside the checkpoint.",
    )
    multi_label: bool | None = option(otherwise=False, help="With tsv, let an example have several labels.")
    regression: bool | None = option(otherwise=False, help="With tsv, read the label as a score.")
    export_text: bool = option(False, help=EXPORT_TEXT)
    export_dtype: str = option(FLOAT32, choices=EXPORT_DTYPES, help=EXPORT_DTYPE)
    feature_layers: str | None = option(
        otherwise=None,
        choices=FEATURE_LAYERS,
        help="With ner, the --feature_layers of the training.",
    )
    bilstm_size: int | None = option(
        otherwise=DEFAULT_BILSTM_SIZE,
        check=SIZE,
        help="With ner and --feature_layers, the --bilstm_size of the training.",
    )
    pooling: str | None = option(
        otherwise="mean",
        choices=POOLINGS,
        help="With embedding, how the vectors of the tokens become one: their mean, the vector of [CLS], or the "
        "largest value of each coordinate.",
    )
    normalize: bool | None = option(
        otherwise=True,
        help="With embedding, divide a vector by its norm, so that a product of two is their cosine.",
    )
    doc_stride: int | None = option(
        otherwise=128,
        check=LENGTH,
        help="With squad, the number of tokens from the start of a window of a long context to the start of the next.",
    )
    max_query_length: int | None = option(
        otherwise=64,
        check=LENGTH_OR_NONE,
        help="With squad, the number of tokens of a question that are kept. Longer questions are truncated.",
    )
    n_best_size: int | None = option(
        otherwise=20,
        check=LENGTH,
        help="With squad, the number of start positions and of end positions that are considered in each window.",
    )
    max_answer_length: int | None = option(
        otherwise=30, check=LENGTH, help="With squad, the number of tokens of the longest answer."
    )
    version_2_with_negative: bool | None = option(
        otherwise=False, help="With squad, let a question have no answer, as in SQuAD 2.0."
    )
    null_score_diff_threshold: float | None = option(
        otherwise=0.0,
        check=(lambda odds: not math.isnan(odds), "must be a number"),
        help="With squad, the null odds above which a question is left unanswered. A run with "
        "--null_score_diff_threshold=auto writes the best value into eval_results.txt.",
    )
    length_aware_batches: bool | None = option(
        otherwise=False,
        help="With squad and --export_text, pad a request to its longest window instead of --max_seq_length. That is "
        "faster, but since the script ranks padding positions too, a few answers may differ.",
    )
