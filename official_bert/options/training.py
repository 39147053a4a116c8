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
EACH_PASS_ORDERS = ("each_pass", "own_each_pass")  # that read each record once in a pass
WORKER_ORDERS = ("own", "own_each_pass")  # in which workers read separate files
_DECAY_RATE: Check = (lambda beta: 0.0 <= beta < 1.0, "must be at least 0 and below 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizationOptions:
    """Flags that the trainers share."""

    chapter: ClassVar[str] = COMMON

    optimizer_type: str = option(
        ADAMW,
        choices=OPTIMIZERS,
        changes_training=True,
        help="The optimizer. adamw is the original's. adamw_bias_correction also corrects the bias "
        "of Adam's moments, so that fine-tuning on few examples fails less often. lamb (You et "
        "al., 2020) corrects the bias and scales each matrix's update to its norm, as large "
        "batches need.",
    )
    adam_beta1: float = option(
        0.9,
        check=_DECAY_RATE,
        changes_training=True,
        help="Adam's beta1: the decay rate of the running mean of the gradients.",
    )
    adam_beta2: float = option(
        0.999,
        check=_DECAY_RATE,
        changes_training=True,
        help="Adam's beta2: the decay rate of the running mean of the squared gradients.",
    )
    adam_epsilon: float = option(
        1e-6,
        check=POSITIVE,
        changes_training=True,
        help="Adam's epsilon, which is added to the denominator of an update.",
    )
    weight_decay_rate: float = option(
        0.01,
        check=NOT_NEGATIVE,
        changes_training=True,
        help="The weight decay, times the learning rate. It does not apply to biases and layer "
        "norms.",
    )
    ema_decay: float | None = option(
        None,
        check=_DECAY_RATE,
        changes_training=True,
        help="The decay rate of an exponential moving average of the trained weights (Polyak and "
        "Juditsky, 1992; Tarvainen and Valpola, 2017), such as 0.999. Evaluation, prediction and "
        "exports then use the average instead of the weights. After t updates the rate is at "
        "most (1 + t) / (10 + t), so that a short training averages the last tenth of its updates.",
    )
    lr_schedule: str = option(
        LINEAR,
        choices=SCHEDULES,
        changes_training=True,
        help="The learning rate after the warm-up. linear is the original's: the peak times 1 - "
        "g/N at step g of N. constant stays at the peak. cosine decays from the peak to 0 as half "
        "a cosine wave. wsd (warm-up, stable, decay) stays at the peak and decays linearly to 0 "
        "over the last tenth of the steps.",
    )
    num_accumulation_steps: int = option(
        1,
        check=SIZE,
        help="The number of micro-batches into which each replica splits its share of "
        "--train_batch_size. It computes one after the other before the update. More micro-batches "
        "need less memory and give the same numbers.",
    )
    gradient_clipping: str = option(
        GLOBAL,
        choices=(GLOBAL, PER_REPLICA),
        changes_training=True,
        help="The gradient whose norm is clipped to 1: global clips that of the whole batch, "
        "per_replica that of each replica before averaging, as the original does on a TPU.",
    )
    recompute_layers: bool = option(
        False,
        help="Recompute each encoder layer in the backward pass instead of keeping its "
        "activations. This takes about a third more time, and much less memory for long sequences.",
    )

    @property
    def bias_remedy(self) -> str:
        """The first hint of a message about a failed training, with a comma; "" if Adam's bias is
        corrected already.
        """
        return f"give --optimizer_type={BIAS_CORRECTED}, " if self.optimizer_type == ADAMW else ""


def _is_range(text: str) -> bool:
    """Returns whether a text names two updates, the first not after the second."""
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal()):
        return False
    return 0 < int(first) <= int(last)


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
        basic=True,
        help="The number of examples in an update, over all replicas together.",
    )
    learning_rate: float = option(
        5e-5,
        basic=True,
        check=NOT_NEGATIVE,
        changes_training=True,
        help="The peak of the learning rate, at the end of the warm-up. --lr_schedule sets what "
        "follows.",
    )
    save_checkpoints_steps: int = option(
        1000, check=POSITIVE, help="The number of updates between two checkpoints."
    )
    keep_checkpoint_max: int = option(
        5,
        check=NOT_NEGATIVE,
        help="The number of newest checkpoints to keep. The checkpoint of step 0 is deleted as "
        "soon as there is another. 0 keeps all of them.",
    )
    log_every_steps: int | None = option(
        None,
        check=POSITIVE,
        help="The number of updates between two progress lines. By default it is 5 % of the "
        "training, but not more than 100.",
    )
    profile_steps: str | None = option(
        None,
        check=(_is_range, "must be two numbers of updates, such as 10:15"),
        only_with={"do_train": ()},
        help="Trace these updates, such as 10:15, with TensorFlow's profiler, and write the trace "
        "to the folder profile in --output_dir.",
    )
    random_seed: int | None = option(
        None,
        check=SEED,
        basic=True,
        help="The seed of the initial weights, the order of the examples and dropout. "
        "Without this flag the script draws a seed, logs it and keeps it with the checkpoints.",
    )

    @property
    def resume_hint(self) -> str:
        """The hint for a user who interrupted the run."""
        return "the same command resumes the training" if self.do_train else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingOptions(MaskingOptions, TrainingOptions):
    """The flags of run_pretraining.py."""

    script: ClassVar[str] = "run_pretraining"
    optional_files: ClassVar[tuple[str, ...]] = ("vocab_file",)

    input_file: list[str] = option(
        help="The TFRecords of create_pretraining_data.py: files or glob patterns, separated by "
        "commas."
    )
    eval_input_file: list[str] | None = option(
        None,
        only_with={"do_eval": ()},
        basic=True,
        help="The TFRecords to evaluate on: files or glob patterns, separated by commas. Without "
        "this flag the script evaluates on --input_file.",
    )
    vocab_file: str | None = option(
        None,
        basic=True,
        help="The vocabulary that the records were made with, which is copied into --output_dir "
        "for the users of the model. Without this flag it is vocab.txt in the folder of the "
        "checkpoint or of --bert_config_file.",
    )
    do_lower_case: bool | None = option(
        fallback=None,
        help="Whether the text of the records was lower-cased, for the tokenizer_config.json in "
        "--output_dir. You need it only if neither the manifest beside the records nor the folder "
        "of the model records it.",
    )
    strip_accents: bool | None = option(
        fallback=None,
        help="Whether accents were removed from the text of the records. The default is that of "
        "--do_lower_case.",
    )
    bert_config_file: str | None = option(
        None,
        basic=True,
        help="The configuration of the model to train: bert_config.json of the original, or "
        "config.json of Hugging Face. You need it unless you pass --model, or the checkpoint's "
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
        basic=True,
        help="The number of masked LM positions that each sequence in the TFRecords has room for.",
    )
    dynamic_masking: bool = option(
        False,
        changes_training=True,
        help="Draw new masks in each pass over the records. create_pretraining_data.py must have "
        "made them with --dynamic_masking. This flag needs the vocabulary, and the flags of masks "
        "are those of that script.",
    )
    use_next_sentence: bool = option(
        True,
        changes_training=True,
        help="Learn next-sentence prediction. --nouse_next_sentence learns masked words only, for "
        "example for records of create_pretraining_data.py --nouse_next_sentence.",
    )
    file_order: str = option(
        "original",
        choices=("original", "each_pass", "own", "own_each_pass"),
        changes_training=True,
        help="The order of the input files. original repeats the files and then shuffles them, as "
        "the original does. With few files, one may be read twice at the same time, which fills "
        "batches with the same records. each_pass shuffles them for each pass, so that a pass "
        "reads each record once. With own and own_each_pass, each process of "
        "--distribution_strategy=multi_worker_mirrored, and each host of a TPU slice, reads a "
        "separate part of the files. Otherwise each process reads all records.",
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
        help="The total number of updates, including those of earlier runs in --output_dir.",
    )
    num_warmup_steps: int = option(
        10000,
        basic=True,
        check=NOT_NEGATIVE,
        changes_training=True,
        help="The number of updates during which the learning rate warms up.",
    )
    stop_at_step: int | None = option(
        None,
        check=POSITIVE,
        help="The number of updates after which this run saves and ends. The learning rate is "
        "still that of --num_train_steps. A later run in the same --output_dir continues, perhaps "
        "on longer sequences.",
    )
    max_train_hours: float | None = option(
        None,
        check=POSITIVE,
        changes_training=True,
        help="The hours after which the training ends, including those of earlier runs in "
        "--output_dir. The learning rate and --train_batch_size_ramp then follow the time, or "
        "the updates if these are ahead. --num_train_steps still ends a training that reaches it "
        "first, and the warm-up counts updates.",
    )
    peak_flops: float | None = option(
        None,
        check=POSITIVE,
        help="The peak of one device in floating point operations a second, such as 989e12, for "
        "the model FLOPs utilization (mfu in the log). Common NVIDIA GPUs do not need this flag.",
    )
    train_batch_size_ramp: list[str] | None = option(
        None,
        changes_training=True,
        help="The sizes of larger batches later in the training, separated by commas, such as "
        "256,1024. Each is a multiple of --train_batch_size, larger than the one before. It is "
        "computed in micro-batches of --train_batch_size. --train_batch_size_boundaries says when "
        "they begin.",
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
        help="The number of batches of an evaluation, which repeats the files if they have fewer. "
        "0 evaluates each record once.",
    )
