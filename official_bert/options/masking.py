"""The options of which tokens are masked, and by what."""

import dataclasses

from official_bert.options.fields import PROBABILITY, between, option

MAX_SPAN = 1000  # words


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskingOptions:
    """Flags that the making of records shares with a pre-training that draws masks itself.

    The generator `exact` has the first two only.
    """

    do_whole_word_mask: bool = option(
        False, help="Choose whole words for masking, with all their pieces, instead of single pieces."
    )
    masked_lm_prob: float = option(
        0.15, check=PROBABILITY, help="The proportion of the tokens of a sequence that are masked."
    )
    mask_token_rate: float = option(
        0.8,
        check=PROBABILITY,
        help="The share of the predicted tokens that [MASK] replaces.",
    )
    random_token_rate: float = option(
        0.1,
        check=PROBABILITY,
        help="The share of the predicted tokens that a random word of the vocabulary "
        "replaces. The others stay as they are.",
    )
    ngram_masking: int = option(
        1,
        check=between(1, MAX_SPAN),
        help="With --do_whole_word_mask: mask spans of 1 to this many whole words, a span of n "
        "words with a probability in proportion to 1/n.",
    )
