"""What the learning of a vocabulary is told. Every field is a flag of build_vocab.py."""

import dataclasses

from official_bert.options.fields import POSITIVE, PROBABILITY, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyOptions:
    input_file: list[str] = option(help="Input raw text (a comma separated list of files or globs).")
    output_file: str = option(help="The vocabulary: one piece a line.")
    vocab_size: int = option(
        30522,
        check=POSITIVE,
        help="Lines of the vocabulary; [unusedN] fill those for which the text gives no piece.",
    )
    do_lower_case: bool = option(
        True,
        help="Whether to lower case the input text. Give the same value wherever the vocabulary is used.",
    )
    strip_accents: bool | None = option(
        None,
        help="Whether to strip accents (which takes Korean and other scripts apart); as --do_lower_case when not "
        "given.",
    )
    character_coverage: float = option(
        0.9999,
        check=PROBABILITY,
        help="Share of the text's characters that get pieces of their own, the commonest first; words with others "
        "become [UNK]. 1 keeps every character.",
    )
    min_frequency: int = option(
        2, check=POSITIVE, help="Occurrences below which no longer piece is learnt, even if lines are left."
    )
    max_words: int = option(
        500000,
        check=POSITIVE,
        help="Distinct words to learn from, the commonest first: time and memory grow with them.",
    )
