"""The options of scores: `official-bert predict --score`, and the command
evaluate_minimal_pairs.
"""

import dataclasses

from official_bert.options.fields import SIZE, option

PLL, WITHIN_WORD = SCORE_METHODS = "pll", "within_word"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """What official-bert predict gets from this extension."""

    score: str | None = option(
        None,
        choices=SCORE_METHODS,
        help="With the folder of a pre-trained model, answer each line with the logarithm of its "
        "probability. pll predicts each piece from all others. within_word also masks the later "
        "pieces of its word.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MinimalPairsOptions:
    model: str = option(help="The folder, or the name, of a pre-trained model.")
    input_file: str = option(help="BLiMP.zip, or a folder of .jsonl files of its form.")
    score: str = option(
        WITHIN_WORD,
        choices=SCORE_METHODS,
        help="How a sentence is scored. pll predicts each piece from all others. within_word also "
        "masks the later pieces of its word. A left-to-right model has one score.",
    )
    num_records: int | None = option(
        None, check=SIZE, help="Only the first pairs of each file, as many as this."
    )
    batch_size: int = option(
        32, check=SIZE, help="The number of masked copies of 128 tokens in a batch."
    )
    output_file: str | None = option(
        None, help="The table as a file, too, with a tab between its columns."
    )
