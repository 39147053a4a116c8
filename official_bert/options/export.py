"""What an export is told. Every field is a flag of export_saved_model.py."""

import dataclasses

from official_bert.options.fields import option

_MIN_SEQ_LENGTH = 3  # special tokens of a pair


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
        check=(lambda n: n >= _MIN_SEQ_LENGTH, f"must be at least {_MIN_SEQ_LENGTH}"),
        help="Length in WordPiece tokens that text is cut to, as in training; requests of tensors may have any "
        "that the model has positions for.",
    )
    labels: list[str] | None = option(
        None, help="tsv, ner: all labels, separated by commas; read beside the checkpoint when not given."
    )
    multi_label: bool = option(False, help="tsv: whether an example may have several labels.")
    regression: bool = option(False, help="tsv: whether the label is a score.")
