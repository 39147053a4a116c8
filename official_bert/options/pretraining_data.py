"""The options of making pre-training records. Every field is a flag of create_pretraining_data.py."""

import dataclasses

from official_bert.options.fields import (
    LENGTH,
    MAX_LENGTH,
    POSITIVE,
    PROBABILITY,
    PROCESSES,
    SEED,
    between,
    option,
)
from official_bert.options.model_files import TokenizerOptions

MIN_SEQ_LENGTH = 5  # [CLS], [SEP], [SEP] and a token on each side


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingDataOptions(TokenizerOptions):
    input_file: list[str] = option(
        help="The raw text: files or glob patterns, separated by commas. The text has one sentence a line and a "
        "blank line between documents."
    )
    output_file: list[str] = option(
        help="The TFRecord files to write, separated by commas. The instances go into the files in turn."
    )
    do_whole_word_mask: bool = option(
        False, help="Choose whole words for masking, with all their pieces, instead of single pieces."
    )
    max_seq_length: int = option(
        128,
        check=between(MIN_SEQ_LENGTH, MAX_LENGTH, ", three special tokens and one on each side"),
        help="The length of a sequence in tokens, special ones included. Shorter sequences are padded to it.",
    )
    max_predictions_per_seq: int = option(
        20, check=LENGTH, help="The script masks at most this many tokens of a sequence."
    )
    random_seed: int = option(
        12345,
        check=SEED,
        help="The seed of all random draws. The same seed, text and flags give the same records.",
    )
    dupe_factor: int = option(
        10,
        check=POSITIVE,
        help="The number of passes over the text. Every pass draws new pairs and new masks.",
    )
    masked_lm_prob: float = option(
        0.15, check=PROBABILITY, help="The proportion of the tokens of a sequence that are masked."
    )
    short_seq_prob: float = option(
        0.1,
        check=PROBABILITY,
        help="The probability, for each document in each pass, that its sequences have a random, shorter length.",
    )
    num_workers: int = option(
        1,
        check=PROCESSES,
        help="The number of processes that tokenize the text. The records do not depend on it.",
    )
