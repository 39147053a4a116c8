"""What every trainer is told: devices, checkpoints, learning rate, seed."""

import dataclasses

from official_bert.options.distribution import DistributionOptions
from official_bert.options.fields import NOT_NEGATIVE, POSITIVE, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(DistributionOptions):
    """Flags that the trainers share; their scripts add the others."""

    bert_config_file: str = option(
        help="The config json file of the model: the original's bert_config.json or a Hugging Face config.json."
    )
    output_dir: str = option(help="The output directory where checkpoints and results are written.")
    init_checkpoint: str | None = option(
        None,
        help="Initial checkpoint (usually a pre-trained BERT model): a TF1 checkpoint prefix or folder, an "
        "output_dir of this script, or a Hugging Face folder.",
    )
    do_train: bool = option(False, help="Whether to run training.")
    train_batch_size: int = option(
        32, check=POSITIVE, help="Examples in one update, over all replicas together."
    )
    learning_rate: float = option(5e-5, check=NOT_NEGATIVE, help="The rate that the warm-up heads for.")
    save_checkpoints_steps: int = option(1000, check=POSITIVE, help="Updates between two checkpoints.")
    keep_checkpoint_max: int = option(
        5, check=NOT_NEGATIVE, help="Newest checkpoints that are kept; 0 keeps all."
    )
    log_every_steps: int = option(100, check=POSITIVE, help="Updates between two progress lines.")
    random_seed: int | None = option(
        None,
        check=(lambda n: abs(n) < 2**63, "must fit 64 bits"),
        help="Seed of initial weights, shuffling and dropout; drawn, logged and kept when not given.",
    )
