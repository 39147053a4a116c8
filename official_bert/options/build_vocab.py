"""The options of learning a vocabulary. Every field is a flag of build_vocab.py."""

import dataclasses

from official_bert.options.corpus import CorpusOptions
from official_bert.options.fields import POSITIVE, PROBABILITY, SIZE, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyOptions(CorpusOptions):
    input_file: list[str] = option(
        help="The raw text to learn from: files or glob patterns, separated by commas."
    )
    output_file: str = option(help="The vocabulary file to write, with one piece a line.")
    vocab_size: int = option(
        30522,
        check=SIZE,
        help="The number of lines of the vocabulary. If the text gives fewer pieces, [unusedN] fill the lines that "
        "are left.",
    )
    do_lower_case: bool = option(
        True,
        help="Lower-case the text before learning. Every script that uses the vocabulary needs the same value.",
    )
    strip_accents: bool | None = option(
        None,
        help="Remove accents from the text, which also takes the syllables of Korean apart. Without this flag the "
        "script removes accents when it lower-cases. Every script that uses the vocabulary needs the same value.",
    )
    character_coverage: float = option(
        0.9999,
        check=PROBABILITY,
        help="The proportion of the text's characters that the vocabulary covers, the most frequent ones first. A "
        "word with another character becomes [UNK]. 1 covers every character.",
    )
    min_frequency: int = option(
        2,
        check=POSITIVE,
        help="The lowest frequency of a piece of several characters. The script learns no rarer piece, even if lines "
        "are left.",
    )
    max_words: int = option(
        500000,
        check=POSITIVE,
        help="The number of distinct words to learn from, the most frequent ones first. Time and memory grow with it.",
    )
