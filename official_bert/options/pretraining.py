"""What a pre-training run is told. Every field is a flag of run_pretraining.py."""

import dataclasses

from official_bert.options.fields import NOT_NEGATIVE, POSITIVE, option
from official_bert.options.training import TrainingOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingOptions(TrainingOptions):
    input_file: list[str] = option(help="Input TF example files (a comma separated list of files or globs).")
    eval_input_file: list[str] | None = option(
        None, help="Files or globs to evaluate on; the training files when not given."
    )
    max_seq_length: int = option(
        128, check=POSITIVE, help="Total input length in WordPiece tokens. Must match data generation."
    )
    max_predictions_per_seq: int = option(
        20, check=POSITIVE, help="Masked LM predictions per sequence. Must match data generation."
    )
    do_eval: bool = option(False, help="Whether to run evaluation on the dev set.")
    eval_batch_size: int = option(8, check=POSITIVE, help="Examples in one evaluation batch.")
    num_train_steps: int = option(100000, check=POSITIVE, help="Updates in total, earlier runs included.")
    num_warmup_steps: int = option(10000, check=NOT_NEGATIVE, help="Updates of learning rate warm-up.")
    max_eval_steps: int = option(100, check=POSITIVE, help="Evaluation batches.")
