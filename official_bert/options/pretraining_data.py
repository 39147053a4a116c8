"""What the making of pre-training records is told. Every field is a flag of create_pretraining_data.py."""

import dataclasses

from official_bert.options.fields import POSITIVE, PROBABILITY, option

MIN_SEQ_LENGTH = 5  # [CLS], [SEP], [SEP] and a token on each side

GENERATORS = ("exact",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingDataOptions:
    input_file: list[str] = option(
        help="Input raw text (a comma separated list of files or globs): one sentence a line, a blank line "
        "between documents."
    )
    output_file: list[str] = option(
        help="Output TF example files (a comma separated list of names); instance k goes into file k mod n."
    )
    vocab_file: str = option(help="The vocabulary file that the BERT model was trained on.")
    do_lower_case: bool = option(
        True,
        help="Whether to lower case the input text. Should be True for uncased models and False for cased models.",
    )
    strip_accents: bool | None = option(
        None,
        help="Whether to strip accents (which takes Korean and other scripts apart); as --do_lower_case when not "
        "given, like the original.",
    )
    do_whole_word_mask: bool = option(
        False, help="Whether to mask all WordPieces of a word together instead of one by one."
    )
    max_seq_length: int = option(
        128,
        check=(
            lambda n: n >= MIN_SEQ_LENGTH,
            f"must be at least {MIN_SEQ_LENGTH}: three special tokens and one token on each side",
        ),
        help="Maximum sequence length in WordPiece tokens, specials included.",
    )
    max_predictions_per_seq: int = option(
        20, check=POSITIVE, help="Maximum number of masked LM predictions per sequence."
    )
    random_seed: int = option(12345, help="Random seed for data generation.")
    dupe_factor: int = option(
        10,
        check=POSITIVE,
        help="Number of times to duplicate the input data, each time with different masks.",
    )
    masked_lm_prob: float = option(0.15, check=PROBABILITY, help="Masked LM probability.")
    short_seq_prob: float = option(
        0.1,
        check=PROBABILITY,
        help="Probability, per document and pass, of sequences which are shorter than the maximum length.",
    )
    generator: str = option(
        "exact",
        choices=GENERATORS,
        help="exact: the original's instances in the original's order for the same seed.",
    )
    num_workers: int = option(
        1, check=POSITIVE, help="Processes that tokenize; the output does not depend on their number."
    )
