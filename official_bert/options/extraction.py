"""The options of extracting features. Every field is a flag of extract_features.py."""

import dataclasses

from official_bert.options.fields import MIN_SEQ_LENGTH, POSITIVE, SIZE, option
from official_bert.options.model_files import (
    ALLOW_MISSING_WEIGHTS,
    CHECKPOINT_FORMS,
    ConfigOptions,
    TokenizerOptions,
)
from official_bert.options.precision import PrecisionOptions

POOLINGS = ("mean", "cls", "max")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractionOptions(ConfigOptions, TokenizerOptions, PrecisionOptions):
    input_file: str = option(
        help="The text to read, with one example a line. The two texts of a pair are separated by ' ||| '."
    )
    output_file: str = option(help="The file to write, with a JSON object for each line of the text.")
    init_checkpoint: str | None = option(
        None,
        help=f"The checkpoint with the model's weights: {CHECKPOINT_FORMS}. It must be given unless --model is.",
    )
    allow_missing_weights: bool = option(False, help=ALLOW_MISSING_WEIGHTS)
    layers: str = option(
        "-1,-2,-3,-4",
        help="The encoder layers whose output is written, in this order, separated by commas: 0 is the first layer, "
        "-1 the last.",
    )
    pooling: str | None = option(
        None,
        choices=POOLINGS,
        help="Write one vector for each line, from the first layer in --layers: the mean of the tokens' vectors, the "
        "vector of [CLS], or the largest value of each coordinate. Without it, the vectors of all tokens are written.",
    )
    attentions: bool = option(
        False,
        help="Write the attention probabilities of the layers in --layers, too: for each head a row for each token, "
        "with the probabilities with which it attends to all tokens.",
    )
    max_seq_length: int | None = option(
        otherwise=128,
        check=MIN_SEQ_LENGTH,
        help="The number of tokens, special ones included, that an example may have. Longer examples are truncated, "
        "and the model sees shorter ones padded.",
    )
    batch_size: int = option(
        32, check=SIZE, help="The number of examples in a batch. The output does not depend on it."
    )
    use_tpu: bool = option(
        False,
        help="Run on the TPU that --master names. Without it the script runs on the first GPU or the CPU.",
    )
    master: str | None = option(
        None, help="The TPU that --use_tpu runs on: its name, its grpc:// address, or local on a TPU VM."
    )
    num_tpu_cores: int = option(
        8,
        check=POSITIVE,
        help="The number of cores of the TPU. The script refuses a TPU that has another number.",
    )
    use_one_hot_embeddings: bool = option(
        False,
        help="Look up word embeddings with a product of one-hot vectors and the table, which is often faster on a TPU.",
    )
