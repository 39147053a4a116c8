"""The options of every training script, and those of run_pretraining.py."""

import dataclasses
from typing import ClassVar

from official_bert.options.fields import (
    COMMON,
    LENGTH,
    NOT_NEGATIVE,
    POSITIVE,
    SEED,
    SIZE,
    Check,
    option,
)
from official_bert.options.shared import (
    ALLOW_MISSING_WEIGHTS,
    ConfigOptions,
    DistributionOptions,
    MaskingOptions,
    PrecisionOptions,
)

# The names of OPTIMIZERS in optimization/__init__.py and of SCHEDULES in schedules.py, the first
# being the original's.
OPTIMIZERS = ADAMW, BIAS_CORRECTED, *_ = "adamw", "adamw_bias_correction", "lamb"
SCHEDULES = LINEAR, *_ = "linear", "constant", "cosine", "wsd"
GLOBAL, PER_REPLICA = "global", "per_replica"
FILE_ORDERS = ("original", "each_pass", "own", "own_each_pass")
OF_EACH_PASS, OF_OWN_FILES = ("each_pass", "own_each_pass"), ("own", "own_each_pass")
_DECAY_RATE: Check = (lambda beta: 0.0 <= beta < 1.0, "must be at least 0 and below 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizationOptions:
    """Flags that the trainers share."""

    chapter: ClassVar[str] = COMMON

    optimizer_type: str = option(
        ADAMW,
        choices=OPTIMIZERS,
        changes_training=True,
        help="The optimizer: adamw is the original's; adamw_bias_correction corrects the bias of "
        "Adam's moments, as Adam's authors do and the original does not, which makes fine-tuning "
        "on few examples fail less often; lamb (You et al., 2020) corrects it, too, and scales "
        "each matrix's update to its norm, as large batches need.",
    )
    adam_beta1: float = option(
        0.9,
        check=_DECAY_RATE,
        changes_training=True,
        help="The decay rate of the mean of the gradients.",
    )
    adam_beta2: float = option(
        0.999,
        check=_DECAY_RATE,
        changes_training=True,
        help="The decay rate of the mean of their squares.",
    )
    adam_epsilon: float = option(
        1e-6, check=POSITIVE, changes_training=True, help="What is added to the root of this mean."
    )
    weight_decay_rate: float = option(
        0.01,
        check=NOT_NEGATIVE,
        changes_training=True,
        help="The weight decay: an update takes this share of the rate from each weight but biases "
        "and layer norms.",
    )
    ema_decay: float | None = option(
        None,
        check=_DECAY_RATE,
        changes_training=True,
        help="The decay rate of an exponential moving average of the trained weights (Polyak and "
        "Juditsky, 1992; Tarvainen and Valpola, 2017), such as 0.999, which evaluation, prediction "
        "and exports then use instead of the weights themselves. After t updates the rate is at "
        "most (1 + t) / (10 + t), so that a short training averages the last tenth of its updates.",
    )
    lr_schedule: str = option(
        LINEAR,
        choices=SCHEDULES,
        changes_training=True,
        help="The learning rate after the warm-up: linear is the original's, the peak times 1 - "
        "g/N at step g of N; constant is the peak; cosine falls from it to 0 as half a cosine "
        "wave; wsd (warm-up, stable, decay) is the peak, and falls to 0 in a straight line over "
        "the last tenth of the steps.",
    )
    num_accumulation_steps: int = option(
        1,
        check=SIZE,
        help="The number of micro-batches in which each replica computes its share of "
        "--train_batch_size, one after the other, before the update. More of them need less "
        "memory; the numbers stay those of the whole batch.",
    )
    gradient_clipping: str = option(
        GLOBAL,
        choices=(GLOBAL, PER_REPLICA),
        changes_training=True,
        help="The gradient whose norm is clipped to 1: global is that of the whole batch; "
        "per_replica is that of each replica before their mean, as on the original's TPU.",
    )
    recompute_layers: bool = option(
        False,
        help="Compute each encoder layer again in the backward pass instead of keeping what is "
        "inside it, which takes about a third more time and much less memory for long sequences.",
    )

    @property
    def bias_remedy(self) -> str:
        """What a message advises first when a training fails, with a comma; "" if the bias is
        corrected already.
        """
        return f"give --optimizer_type={BIAS_CORRECTED}, " if self.optimizer_type == ADAMW else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(DistributionOptions, OptimizationOptions, PrecisionOptions, ConfigOptions):
    """Flags that the trainers share; their scripts add the others.

    Attributes:
        length_flag: the flag that sets how long the training is.
        warmup_flag: the flag that sets how long the learning rate warms up.
    """

    chapter: ClassVar[str] = COMMON
    length_flag: ClassVar[str] = "num_train_steps"
    warmup_flag: ClassVar[str] = "num_warmup_steps"

    output_dir: str = option(
        help="The folder for checkpoints and results. If it holds a checkpoint, the run continues "
        "from it."
    )
    init_checkpoint: str | None = option(
        None,
        changes_training=True,
        names_model=True,
        help="The checkpoint whose weights the model starts with: a TF1 checkpoint prefix or "
        "folder, the --output_dir of a training script, or a Hugging Face folder. A checkpoint in "
        "--output_dir takes precedence.",
    )
    allow_missing_weights: bool = option(False, help=ALLOW_MISSING_WEIGHTS)
    do_train: bool = option(False, basic=True, help="Train the model.")
    train_batch_size: int = option(
        32,
        check=SIZE,
        changes_training=True,
        help="The number of examples in an update, over all replicas together.",
    )
    learning_rate: float = option(
        5e-5,
        basic=True,
        check=NOT_NEGATIVE,
        changes_training=True,
        help="The peak of the learning rate: the warm-up rises towards it, and --lr_schedule says "
        "what follows.",
    )
    save_checkpoints_steps: int = option(
        1000, check=POSITIVE, help="The number of updates between two checkpoints."
    )
    keep_checkpoint_max: int = option(
        5,
        check=NOT_NEGATIVE,
        help="The number of checkpoints to keep, the newest ones. 0 keeps all of them.",
    )
    log_every_steps: int = option(
        100, check=POSITIVE, help="The number of updates between two progress lines."
    )
    random_seed: int | None = option(
        None,
        check=SEED,
        help="The seed of the initial weights, of the order of the examples and of dropout. "
        "Without this flag the script draws a seed, logs it and keeps it with the checkpoints.",
    )

    @property
    def after_a_stop(self) -> str:
        """What a user is told whose run was interrupted."""
        return "the same command resumes the training" if self.do_train else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingOptions(MaskingOptions, TrainingOptions):
    script: ClassVar[str] = "run_pretraining"
    optional_files: ClassVar[tuple[str, ...]] = ("vocab_file",)

    input_file: list[str] = option(
        help="The TFRecords of create_pretraining_data.py: files or glob patterns, separated by "
        "commas."
    )
    eval_input_file: list[str] | None = option(
        None,
        only_with={"do_eval": ()},
        help="The TFRecords to evaluate on: files or glob patterns, separated by commas. Without "
        "this flag the script evaluates on --input_file.",
    )
    vocab_file: str | None = option(
        None,
        help="The vocabulary that the records were made with, which is copied into --output_dir "
        "for the users of the model. Without this flag it is vocab.txt in the folder of the "
        "checkpoint or of --bert_config_file.",
    )
    do_lower_case: bool | None = option(
        fallback=None,
        help="Whether the text of the records was lower-cased, for the tokenizer_config.json in "
        "--output_dir. It must be given only where neither the manifest beside the records nor the "
        "folder of the model says it.",
    )
    strip_accents: bool | None = option(
        fallback=None,
        help="Whether accents were removed from the text of the records. Without this flag it is "
        "as --do_lower_case.",
    )
    bert_config_file: str | None = option(
        None,
        basic=True,
        help="The configuration of the model to train: bert_config.json of the original, or "
        "config.json of Hugging Face. It must be given unless --model is, or the checkpoint's "
        "folder has it.",
    )
    max_seq_length: int = option(
        128,
        basic=True,
        check=LENGTH,
        changes_training=True,
        help="The length of the sequences in the TFRecords, in tokens.",
    )
    max_predictions_per_seq: int = option(
        20,
        check=LENGTH,
        changes_training=True,
        help="The number of masked LM positions that each sequence in the TFRecords has room for.",
    )
    dynamic_masking: bool = option(
        False,
        changes_training=True,
        help="Draw masks while reading, new ones in each pass over the records, which "
        "create_pretraining_data.py has made with --dynamic_masking, too. It needs the vocabulary. "
        "The flags of the masks are those of that script.",
    )
    use_next_sentence: bool = option(
        True,
        changes_training=True,
        help="Learn next sentences, too. --nouse_next_sentence learns masked words alone, for "
        "records of create_pretraining_data.py --nouse_next_sentence for instance.",
    )
    file_order: str = option(
        "original",
        choices=FILE_ORDERS,
        changes_training=True,
        help="The order of the input files. original repeats them first and shuffles then, as the "
        "original does: of a few files, one may be read twice at the same time, which fills "
        "batches with the same records, and another only later. each_pass shuffles them anew for "
        "each pass, so that a pass reads each record once. own and own_each_pass let each process "
        "of --distribution_strategy=multi_worker_mirrored, and each host of a TPU slice, read "
        "files of its own, which spares it the others' records; else each process reads all "
        "records, and the batches are those of one.",
    )
    do_eval: bool = option(
        False, basic=True, help="Evaluate the model, after the training if there is one."
    )
    eval_batch_size: int = option(
        8, check=SIZE, help="The number of sequences in an evaluation batch."
    )
    num_train_steps: int = option(
        100000,
        basic=True,
        check=POSITIVE,
        changes_training=True,
        help="The number of updates in total, those of earlier runs in --output_dir included.",
    )
    num_warmup_steps: int = option(
        10000,
        basic=True,
        check=NOT_NEGATIVE,
        changes_training=True,
        help="The number of updates during which the learning rate warms up.",
    )
    max_train_hours: float | None = option(
        None,
        check=POSITIVE,
        changes_training=True,
        help="The hours after which the training ends, those of earlier runs in --output_dir "
        "included. The learning rate and --train_batch_size_ramp then follow the time: they are "
        "where they would be after the same share of --num_train_steps, which still ends a "
        "training that reaches it first. The warm-up counts updates.",
    )
    train_batch_size_ramp: list[str] | None = option(
        None,
        changes_training=True,
        help="The sizes of larger batches later in the training, separated by commas, such as "
        "256,1024. Each is a larger multiple of --train_batch_size, in parts of which it is "
        "computed. --train_batch_size_boundaries says when they begin.",
    )
    train_batch_size_boundaries: list[str] | None = option(
        None,
        changes_training=True,
        only_with={"train_batch_size_ramp": ()},
        help="For each size of --train_batch_size_ramp, the share of the updates after which it "
        "begins, such as 0.1,0.6.",
    )
    max_eval_steps: int = option(
        100,
        check=NOT_NEGATIVE,
        help="The batches of an evaluation, which starts the files anew at their end; 0 evaluates "
        "each record once.",
    )
