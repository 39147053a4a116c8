"""The options of a pre-training run. Every field is a flag of run_pretraining.py."""

import dataclasses
from typing import ClassVar

from official_bert.options.fields import LENGTH, NOT_NEGATIVE, POSITIVE, SIZE, option
from official_bert.options.masking import MaskingOptions
from official_bert.options.training import TrainingOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingOptions(MaskingOptions, TrainingOptions):
    optional_files: ClassVar[tuple[str, ...]] = ("vocab_file",)

    input_file: list[str] = option(
        help="The TFRecords of create_pretraining_data.py: files or glob patterns, separated by commas."
    )
    eval_input_file: list[str] | None = option(
        None,
        help="The TFRecords to evaluate on: files or glob patterns, separated by commas. Without this flag the "
        "script evaluates on --input_file.",
    )
    vocab_file: str | None = option(
        None,
        help="The vocabulary that the records were made with, which is copied into --output_dir for the users of the "
        "model. Without this flag it is vocab.txt in the folder of the checkpoint or of --bert_config_file.",
    )
    do_lower_case: bool | None = option(
        otherwise=None,
        help="Whether the text of the records was lower-cased, for the tokenizer_config.json in --output_dir. Without "
        "this flag the tokenizer_config.json beside the vocabulary tells, or else whether the vocabulary has capitals.",
    )
    strip_accents: bool | None = option(
        otherwise=None,
        help="Whether accents were removed from the text of the records. Without this flag it is as --do_lower_case.",
    )
    max_seq_length: int = option(
        128, check=LENGTH, help="The length of the sequences in the TFRecords, in tokens."
    )
    max_predictions_per_seq: int = option(
        20,
        check=LENGTH,
        help="The number of masked LM positions that each sequence in the TFRecords has room for.",
    )
    dynamic_masking: bool = option(
        False,
        help="Draw masks while reading, new ones in each pass over the records, which create_pretraining_data.py has "
        "made with --nomask_tokens. It needs the vocabulary. The flags of the masks are those of that script.",
    )
    use_next_sentence_loss: bool = option(
        True,
        help="Learn next sentences, too. --nouse_next_sentence_loss learns masked words alone, for records of "
        "create_pretraining_data.py --nouse_next_sentence for instance.",
    )
    packed_sequences: bool = option(
        False,
        help="Compute nothing for padding: the tokens of a batch stand in one matrix, and attention works on groups of "
        "sequences of similar length. The numbers are the same without dropout, whose masks differ. It saves about as "
        "much time as the records have padding. Neither a TPU nor --jit_compile can do it.",
    )
    shuffle_files_each_pass: bool = option(
        False,
        help="Shuffle the input files anew for each pass over them, so that a pass reads each record once. Without "
        "this flag the files are repeated first and shuffled then, as in the original: of a few files, one may be read "
        "twice at the same time, which fills batches with the same records, and another only later.",
    )
    shard_input_files: bool = option(
        False,
        help="Let each process of --distribution_strategy=multi_worker_mirrored read files of --input_file of its own, "
        "which spares it the others' records. Without this flag each reads all records, and the batches are those of "
        "one process.",
    )
    do_eval: bool = option(False, help="Evaluate the model, after the training if there is one.")
    eval_batch_size: int = option(8, check=SIZE, help="The number of sequences in an evaluation batch.")
    num_train_steps: int = option(
        100000,
        check=POSITIVE,
        help="The number of updates in total, those of earlier runs in --output_dir included.",
    )
    num_warmup_steps: int = option(
        10000, check=NOT_NEGATIVE, help="The number of updates during which the learning rate warms up."
    )
    max_eval_steps: int = option(
        100,
        check=NOT_NEGATIVE,
        help="The number of batches of an evaluation, which starts the files anew at their end. 0 evaluates every "
        "record once.",
    )
