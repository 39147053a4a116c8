"""What a classification run is told. Every field is a flag of run_classifier.py."""

import dataclasses

from official_bert.options.fields import MIN_SEQ_LENGTH, POSITIVE, option
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.options.tsv import TsvOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationOptions(FineTuningOptions, TsvOptions):
    data_dir: str = option(help="The input data folder: the .tsv files (or other data files) of the task.")
    task_name: str = option(
        help="The task: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, AX, XNLI, tsv for files of your "
        "own (case and hyphens do not count), or module:Class, a DataProcessor of your own."
    )
    max_seq_length: int = option(
        128, check=MIN_SEQ_LENGTH, help="Maximum input length in WordPiece tokens; longer inputs are cut."
    )
    do_eval: bool = option(False, help="Whether to run evaluation on the dev set.")
    eval_batch_size: int = option(8, check=POSITIVE, help="Examples in one evaluation batch.")
    class_weights: list[str] | None = option(
        None, help="Weights of the labels in the training loss, in their order, separated by commas."
    )
    glue_submission_dir: str | None = option(
        None, help="Folder for the predictions in the form that GLUE's site takes."
    )
    xnli_language: str = option("zh", help="XNLI: the language.")
    bert_hub_module_handle: str | None = option(
        None, help="Not supported: give the model with --init_checkpoint instead."
    )
