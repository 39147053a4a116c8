"""What predict.py is told, and `Predictor`: the fields of PredictOptions are flags of the script."""

import dataclasses
import math

from official_bert.options.fields import NOT_NEGATIVE, POSITIVE, option

TSV, JSON = "tsv", "json"
STOP, REPORT = "stop", "report"
POOLED, SEQUENCE = "pooled_output", "sequence_output"
_AS_EXPORTED = "As the model was exported when not given."


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictorOptions:
    """How a model answers."""

    model_dir: str = option(
        help="The exported model: a version's folder, or an --export_dir, of which the newest version is taken."
    )
    batch_size: int = option(
        32, check=POSITIVE, help="Examples that the model is given at once; no answer depends on it."
    )
    vectors: str = option(
        POOLED,
        choices=(POOLED, SEQUENCE),
        help="pretraining: what a text without [MASK] is answered with, a vector or one for each token.",
    )
    doc_stride: int | None = option(
        None, check=POSITIVE, help=f"SQuAD: tokens from a window to the next. {_AS_EXPORTED}"
    )
    max_query_length: int | None = option(
        None, check=NOT_NEGATIVE, help=f"SQuAD: tokens of a question that are kept. {_AS_EXPORTED}"
    )
    n_best_size: int | None = option(
        None, check=POSITIVE, help=f"SQuAD: starts and ends that are tried in a window. {_AS_EXPORTED}"
    )
    max_answer_length: int | None = option(
        None, check=POSITIVE, help=f"SQuAD: the most tokens of an answer. {_AS_EXPORTED}"
    )
    version_2_with_negative: bool | None = option(
        None, help=f"SQuAD: whether a question may have no answer. {_AS_EXPORTED}"
    )
    null_score_diff_threshold: float | None = option(
        None,
        check=(lambda odds: not math.isnan(odds), "must be a number"),
        help=f"SQuAD 2.0: null odds above which a question is left unanswered. {_AS_EXPORTED}",
    )
    length_aware_batches: bool | None = option(
        None,
        help="SQuAD: whether a batch is padded to its longest window instead of the model's max_seq_length, and "
        f"padding left out of the ranking. Faster, but rare answers may differ. {_AS_EXPORTED}",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions(PredictorOptions):
    """Flags of predict.py."""

    input_file: str = option("-", help="A request a line; - is standard input.")
    output_file: str = option(
        "-", help="Output JSON lines, one object for each line of the input; - is standard output."
    )
    input_format: str = option(
        TSV,
        choices=(TSV, JSON),
        help="tsv: the texts of a line are separated by tabs. json: a line is an object of texts by name, text_a "
        "[and text_b], text (ner), question and context, or context and ending0 to ending3; other fields are not read.",
    )
    on_error: str = option(
        STOP,
        choices=(STOP, REPORT),
        help="What to do with a line that is no request: stop there with status 1, or write an object with the "
        "field error in its place and go on.",
    )
