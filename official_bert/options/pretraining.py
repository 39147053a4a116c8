"""What a pre-training run is told. Every field is a flag of run_pretraining.py."""

import dataclasses

from official_bert.options.distribution import DistributionOptions
from official_bert.options.fields import NOT_NEGATIVE, POSITIVE, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingOptions(DistributionOptions):
    bert_config_file: str = option(
        help="The config json file of the model: the original's bert_config.json or a Hugging Face config.json."
    )
    input_file: list[str] = option(help="Input TF example files (a comma separated list of files or globs).")
    output_dir: str = option(help="The output directory where checkpoints and results are written.")
    init_checkpoint: str | None = option(
        None,
        help="Initial checkpoint (usually a pre-trained BERT model): a TF1 checkpoint prefix or folder, an "
        "output_dir of this script, or a Hugging Face folder.",
    )
    eval_input_file: list[str] | None = option(
        None, help="Files or globs to evaluate on; the training files when not given."
    )
    max_seq_length: int = option(
        128, check=POSITIVE, help="Total input length in WordPiece tokens. Must match data generation."
    )
    max_predictions_per_seq: int = option(
        20, check=POSITIVE, help="Masked LM predictions per sequence. Must match data generation."
    )
    do_train: bool = option(False, help="Whether to run training.")
    do_eval: bool = option(False, help="Whether to run evaluation on the dev set.")
    train_batch_size: int = option(
        32, check=POSITIVE, help="Examples in one update, over all replicas together."
    )
    eval_batch_size: int = option(8, check=POSITIVE, help="Examples in one evaluation batch.")
    learning_rate: float = option(
        5e-5, check=NOT_NEGATIVE, help="The rate that the warm-up heads for."
    )
    num_train_steps: int = option(100000, check=POSITIVE, help="Updates in total, earlier runs included.")
    num_warmup_steps: int = option(10000, check=NOT_NEGATIVE, help="Updates of learning rate warm-up.")
    save_checkpoints_steps: int = option(1000, check=POSITIVE, help="Updates between two checkpoints.")
    keep_checkpoint_max: int = option(
        5, check=NOT_NEGATIVE, help="Newest checkpoints that are kept; 0 keeps all."
    )
    log_every_steps: int = option(100, check=POSITIVE, help="Updates between two progress lines.")
    max_eval_steps: int = option(100, check=POSITIVE, help="Evaluation batches.")
    random_seed: int | None = option(
        None, help="Seed of initial weights, shuffling and dropout; drawn, logged and kept when not given."
    )
