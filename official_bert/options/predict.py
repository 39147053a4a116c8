"""The options of predict.py and of `Predictor`: the fields of PredictOptions are flags of the script."""

import dataclasses
import math

from official_bert.options.fields import LENGTH, LENGTH_OR_NONE, SIZE, option

TSV, JSON = "tsv", "json"
STOP, REPORT = "stop", "report"
POOLED, SEQUENCE = "pooled_output", "sequence_output"
_AS_EXPORTED = "Without this flag the value of the export holds."


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictorOptions:
    """How a model answers."""

    model_dir: str = option(
        alias="model",
        help="The exported model: the folder of a version, or an --export_dir, whose newest version is taken. The "
        "--output_dir of a training script, or another folder of a model, needs no export.",
    )
    batch_size: int = option(
        32,
        check=SIZE,
        help="The number of examples that the model is given at once. The answers do not depend on it.",
    )
    vectors: str = option(
        POOLED,
        choices=(POOLED, SEQUENCE),
        help="The answer of a pre-trained model to a text without [MASK]: pooled_output is one vector, "
        "sequence_output a vector for each token.",
    )
    doc_stride: int | None = option(
        None,
        check=LENGTH,
        help="With SQuAD, the number of tokens from the start of a window of a long context to the start of the "
        f"next. {_AS_EXPORTED}",
    )
    max_query_length: int | None = option(
        None,
        check=LENGTH_OR_NONE,
        help=f"With SQuAD, the number of tokens of a question that are kept. {_AS_EXPORTED}",
    )
    n_best_size: int | None = option(
        None,
        check=LENGTH,
        help="With SQuAD, the number of start positions and of end positions that are considered in each window. "
        f"{_AS_EXPORTED}",
    )
    max_answer_length: int | None = option(
        None,
        check=LENGTH,
        help=f"With SQuAD, the number of tokens of the longest answer. {_AS_EXPORTED}",
    )
    version_2_with_negative: bool | None = option(
        None, help=f"With SQuAD, let a question have no answer. {_AS_EXPORTED}"
    )
    null_score_diff_threshold: float | None = option(
        None,
        check=(lambda odds: not math.isnan(odds), "must be a number"),
        help=f"With SQuAD 2.0, the null odds above which a question is left unanswered. {_AS_EXPORTED}",
    )
    length_aware_batches: bool | None = option(
        None,
        help="With SQuAD, pad a batch to its longest window instead of the export's --max_seq_length. That is "
        f"faster, but since the script ranks padding positions too, a few answers may differ. {_AS_EXPORTED}",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions(PredictorOptions):
    """Flags of predict.py."""

    input_file: str = option("-", help="The file to read, with one request a line; - is standard input.")
    output_file: str = option(
        "-",
        help="The file to write, with a JSON object for each line of the input; - is standard output.",
    )
    input_format: str = option(
        TSV,
        choices=(TSV, JSON),
        help="The form of a line. tsv: texts, separated by tabs. json: an object that names its texts: text_a and "
        "text_b; text (ner); question and context; or context and ending0 to ending3. Its other fields are ignored.",
    )
    on_error: str = option(
        STOP,
        choices=(STOP, REPORT),
        help="The reaction to a line that is no valid request: stop ends the script with exit status 1; report "
        "writes an object with the field error for that line and continues.",
    )
