"""The options that all trainers share: configuration, checkpoints, learning rate, seed."""

import dataclasses

from official_bert.options.distribution import DistributionOptions
from official_bert.options.fields import NOT_NEGATIVE, POSITIVE, SEED, SIZE, option
from official_bert.options.model_files import ALLOW_MISSING_WEIGHTS, ConfigOptions
from official_bert.options.optimization import OptimizationOptions
from official_bert.options.precision import PrecisionOptions
from official_bert.options.reporting import ReportingOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(
    DistributionOptions, OptimizationOptions, PrecisionOptions, ReportingOptions, ConfigOptions
):
    """Flags that the trainers share; their scripts add the others."""

    output_dir: str = option(
        help="The folder for checkpoints and results. If it holds a checkpoint, the run continues from it."
    )
    init_checkpoint: str | None = option(
        None,
        help="The checkpoint whose weights the model starts with: a TF1 checkpoint prefix or folder, the "
        "--output_dir of a training script, or a Hugging Face folder. A checkpoint in --output_dir takes precedence.",
    )
    allow_missing_weights: bool = option(False, help=ALLOW_MISSING_WEIGHTS)
    do_train: bool = option(False, help="Train the model.")
    train_batch_size: int = option(
        32, check=SIZE, help="The number of examples in an update, over all replicas together."
    )
    learning_rate: float = option(
        5e-5,
        check=NOT_NEGATIVE,
        help="The peak of the learning rate: the warm-up rises towards it, and after the warm-up the rate of step g of "
        "N is the peak times 1 - g/N, as in the original.",
    )
    save_checkpoints_steps: int = option(
        1000, check=POSITIVE, help="The number of updates between two checkpoints."
    )
    keep_checkpoint_max: int = option(
        5, check=NOT_NEGATIVE, help="The number of checkpoints to keep, the newest ones. 0 keeps all of them."
    )
    log_every_steps: int = option(
        100, check=POSITIVE, help="The number of updates between two progress lines."
    )
    random_seed: int | None = option(
        None,
        check=SEED,
        help="The seed of the initial weights, of the order of the examples and of dropout. Without this flag the "
        "script draws a seed, logs it and keeps it with the checkpoints.",
    )

    @property
    def after_a_stop(self) -> str:
        """What a user is told whose run was interrupted."""
        return "the same command resumes the training" if self.do_train else ""
