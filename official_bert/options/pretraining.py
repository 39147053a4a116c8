"""The options of a pre-training run. Every field is a flag of run_pretraining.py."""

import dataclasses

from official_bert.options.fields import LENGTH, NOT_NEGATIVE, POSITIVE, SIZE, option
from official_bert.options.training import TrainingOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingOptions(TrainingOptions):
    input_file: list[str] = option(
        help="The TFRecords of create_pretraining_data.py: files or glob patterns, separated by commas."
    )
    eval_input_file: list[str] | None = option(
        None,
        help="The TFRecords to evaluate on: files or glob patterns, separated by commas. Without this flag the "
        "script evaluates on --input_file.",
    )
    max_seq_length: int = option(
        128, check=LENGTH, help="The length of the sequences in the TFRecords, in tokens."
    )
    max_predictions_per_seq: int = option(
        20,
        check=LENGTH,
        help="The number of masked LM positions that each sequence in the TFRecords has room for.",
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
