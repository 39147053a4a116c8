"""The options that scripts of several kinds share: the model's files, devices, number types,
masking, text formats.
"""

import dataclasses
from typing import ClassVar

from official_bert.options.fields import (
    COMMON,
    DEVICES,
    MODEL,
    POSITIVE,
    PROBABILITY,
    PROCESSES,
    SIZE,
    between,
    option,
)

ALLOW_MISSING_WEIGHTS = (
    "Use the model although its checkpoint lacks weights, which are then random, or has layers "
    "that the model lacks. Without this flag that is an error, except at the start of training."
)
CHECKPOINT_FORMS = (
    "a TF1 checkpoint prefix or folder, the --output_dir of a training, a Hugging Face folder, or "
    "a name"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The folder of a model, which replaces the flags of its files.

    Attributes:
        optional_files: flags of files that a run can do without.
    """

    chapter: ClassVar[str] = MODEL
    optional_files: ClassVar[tuple[str, ...]] = ()

    model: str | None = option(
        None,
        basic=True,
        help="The folder of a model: the --output_dir of a training script, the folder of a "
        "released model, or a Hugging Face folder. A name, such as google-bert/bert-base-uncased "
        "or uncased_L-12_H-768_A-12, is downloaded. It replaces --vocab_file, --bert_config_file "
        "and --init_checkpoint, and sets how the model reads text.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigOptions(ModelOptions):
    """Where the model's configuration is."""

    chapter: ClassVar[str] = MODEL

    bert_config_file: str | None = option(
        None,
        help="The model's configuration: bert_config.json of the original, or config.json of "
        "Hugging Face. You need it unless you pass --model, or the checkpoint's folder has it.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerOptions(ModelOptions):
    """How text becomes WordPiece tokens."""

    chapter: ClassVar[str] = MODEL

    vocab_file: str | None = option(
        None,
        help="The WordPiece vocabulary of the model, a text file with one piece a line. You need "
        "it unless you pass --model, or the checkpoint's folder has it.",
    )
    do_lower_case: bool = option(
        fallback=True,
        fixed_by_training=True,
        help="Lower-case the text. Uncased models need this; cased models need --nodo_lower_case. "
        "Without this flag the tokenizer_config.json of the model's folder decides, if there is "
        "one.",
    )
    strip_accents: bool | None = option(
        fallback=None,
        fixed_by_training=True,
        help="Remove accents from the text, which also splits the syllables of Korean. Without "
        "this flag the tokenizer removes accents when it lower-cases, as the original does, unless "
        "the tokenizer_config.json of the model's folder says otherwise.",
    )


FLOAT32, BFLOAT16, FLOAT16, AUTO = "float32", "bfloat16", "float16", "auto"
INT8, INT8_WEIGHTS = "int8", "int8_weights"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrecisionOptions:
    """A flag that all scripts share if they run a model from a checkpoint."""

    chapter: ClassVar[str] = COMMON

    dtype: str = option(
        FLOAT32,
        choices=(FLOAT32, BFLOAT16, FLOAT16, AUTO),
        changes_training=True,
        help="The type of the matrix products in training, evaluation and prediction, and of the "
        "activations between them. The rest is float32, including the weights and checkpoints. "
        "bfloat16 is for TPUs, newer GPUs and CPUs with AMX or AVX512_BF16. float16, with a scaled "
        "loss, is for GPUs. auto is bfloat16 on the devices named for it, otherwise float32.",
    )


MULTI_WORKER = "multi_worker_mirrored"
STRATEGIES = ("one_device", "mirrored", MULTI_WORKER, "tpu")
NCCL, RING = "nccl", "ring"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistributionOptions:
    """Flags that every trainer shares."""

    chapter: ClassVar[str] = DEVICES

    use_tpu: bool = option(
        False,
        help="Run on the TPU of --tpu_name, like --distribution_strategy=tpu.",
    )
    tpu_name: str | None = option(
        None,
        alias="tpu",
        help="The TPU of --use_tpu: its name in Google Cloud, grpc://10.0.0.2:8470 or the like, or "
        "local on a TPU VM.",
    )
    tpu_zone: str | None = option(
        None,
        help="The Google Cloud zone of the TPU. Without this flag TensorFlow queries the metadata "
        "server of the machine.",
    )
    gcp_project: str | None = option(
        None,
        help="The Google Cloud project of the TPU. Without this flag TensorFlow queries the "
        "metadata server of the machine.",
    )
    master: str | None = option(
        None, help="The address of the TPU. The script uses it when --tpu_name is not given."
    )
    num_tpu_cores: int = option(
        8,
        check=POSITIVE,
        help="The number of cores of the TPU. The script refuses a TPU that has another number.",
    )
    iterations_per_loop: int = option(
        1000,
        check=SIZE,
        help="The number of training steps that a TPU runs before it returns to the host.",
    )
    steps_per_loop: int = option(
        10,
        check=SIZE,
        help="The maximum number of training steps in one call into TensorFlow. A call ends after "
        "about a second, so that a signal does not wait. A TPU uses --iterations_per_loop.",
    )
    distribution_strategy: str | None = option(
        None,
        choices=STRATEGIES,
        help="The devices that share a batch: one_device (the default) is the first GPU or the "
        "CPU; mirrored is all GPUs of this machine, or the logical CPUs if there is none; "
        "multi_worker_mirrored is all GPUs, or the CPU, of each of several processes, which the "
        "variable TF_CONFIG lists and which run this script with equal flags; tpu (the default "
        "with --use_tpu) is all cores of a TPU.",
    )
    num_devices: int | None = option(
        None,
        check=PROCESSES,
        help="The number of GPUs that --distribution_strategy=mirrored uses, by default all. On a "
        "machine without a GPU, the number of logical devices that it splits the CPU into, for "
        "tests.",
    )
    collective: str = option(
        AUTO,
        choices=(AUTO, NCCL, RING),
        help="How the processes of --distribution_strategy=multi_worker_mirrored sum their "
        "gradients: nccl is NVIDIA's library for GPUs, ring is TensorFlow's own over gRPC, and "
        "auto is nccl if there are GPUs, otherwise ring.",
    )
    all_reduce_dtype: str = option(
        FLOAT32,
        choices=(FLOAT32, BFLOAT16),
        changes_training=True,
        help="The type in which several devices sum gradients. bfloat16 halves the bytes that they "
        "send, and rounds to 8 bits.",
    )
    jit_compile: bool = option(
        False,
        help="Compile the training step with XLA. A TPU always does so, and other devices always "
        "compile the update of the weights.",
    )


MAX_SPAN = 1000  # words


def _are_rates(text: str) -> bool:
    try:
        mask_rate, random_rate = (float(rate) for rate in text.split(","))
    except ValueError:
        return False
    is_each_valid = 0 <= mask_rate <= 1 and 0 <= random_rate <= 1
    return is_each_valid and mask_rate + random_rate <= 1 + 1e-9


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskingOptions:
    """Flags of masks, for the scripts that make records and for --dynamic_masking.

    The generator `exact` has the first two only.
    """

    do_whole_word_mask: bool = option(
        False,
        changes_training=True,
        help="Choose whole words for masking, with all their pieces, instead of single pieces.",
    )
    masked_lm_prob: float = option(
        0.15,
        check=PROBABILITY,
        changes_training=True,
        help="The proportion of the tokens of a sequence that are masked.",
    )
    mask_rates: str = option(
        "0.8,0.1",
        check=(
            _are_rates,
            "must be two numbers between 0 and 1 with a comma, whose sum is at most 1",
        ),
        changes_training=True,
        help="Two shares of the predicted tokens, separated by a comma: those that become [MASK], "
        "and those that become a random word of the vocabulary. The others are not changed.",
    )
    ngram_masking: int = option(
        1,
        check=between(1, MAX_SPAN),
        changes_training=True,
        help="With --do_whole_word_mask, mask spans of 1 to this many whole words. The probability "
        "of a span of n words is proportional to 1/n.",
    )


TEXT, WIKIEXTRACTOR, JSON_LINES, PROSE = "text", "wikiextractor", "json_lines", "prose"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """Flags of the scripts that read a corpus."""

    input_format: str = option(
        TEXT,
        choices=(TEXT, WIKIEXTRACTOR, JSON_LINES, PROSE),
        help="The format of --input_file, plain or compressed with gzip. text has one sentence a "
        "line and a blank line between documents. wikiextractor is the output of WikiExtractor, a "
        "page between <doc ...> and </doc>. json_lines has a JSON object on each line, whose field "
        '"text" is a document. prose is one document a file, such as a book: its lines are joined '
        "into paragraphs, which a blank line may end, and split into sentences by simple rules.",
    )
