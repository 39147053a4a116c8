"""The options of a classification run. Every field is a flag of run_classifier.py."""

import dataclasses
from typing import ClassVar

from official_bert.options.fields import MIN_SEQ_LENGTH, SIZE, option
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.options.tsv import TsvOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationOptions(FineTuningOptions, TsvOptions):
    prediction_flags: ClassVar[tuple[str, ...]] = (*FineTuningOptions.prediction_flags, "glue_submission_dir")

    data_dir: str = option(help="The folder of the task's data, such as train.tsv, dev.tsv and test.tsv.")
    task_name: str = option(
        help="The task: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, AX or XNLI, in any case and without "
        "hyphens if you like; tsv for files of your own; or module:Class for a DataProcessor or a Task of your own."
    )
    max_seq_length: int | None = option(
        otherwise=128,
        check=MIN_SEQ_LENGTH,
        help="The number of tokens, special ones included, that an example may have. Longer examples are truncated.",
    )
    do_eval: bool = option(False, help="Evaluate the model on the development set.")
    eval_batch_size: int = option(8, check=SIZE, help="The number of examples in an evaluation batch.")
    class_weights: list[str] | None = option(
        None,
        help="The weights of the labels in the training loss, separated by commas, in the order of the labels.",
    )
    glue_submission_dir: str | None = option(
        None, help="A folder for the predictions in the file format of the GLUE website."
    )
    xnli_language: str = option(
        "zh", help="The language of XNLI's files, such as zh, en or de. Other tasks ignore it."
    )
    bert_hub_module_handle: str | None = option(
        None,
        refused="TensorFlow Hub modules are not supported; leave this flag out and give the model's files with "
        "--vocab_file, --bert_config_file and --init_checkpoint",
        help="A flag of the original's run_classifier_with_tfhub.py that this script refuses.",
    )
