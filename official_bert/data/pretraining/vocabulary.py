"""Learns the lines of a WordPiece vocabulary from the words of a corpus with their counts."""

import collections
import dataclasses
import types
from collections.abc import Collection, Mapping

from official_bert.io.errors import InputError
from official_bert.io.quiet_imports import quiet_imports
from official_bert.tokenization import BasicTokenizer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# In characters. A longer string is hardly a word, and the learner's time grows with the square of
# the length.
_LONGEST_WORD = 50


@dataclasses.dataclass(frozen=True)
class Words:
    """The words that a vocabulary is learnt from.

    Attributes:
        counts: the words with their counts, in decreasing order.
        characters: the characters of these words.
        left_out: the other characters of the text, which become [UNK].
        share: the share of the text's words that these words cover, by their counts.
    """

    counts: list[tuple[str, int]]
    characters: frozenset[str]
    left_out: frozenset[str]
    share: float


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """A learnt vocabulary: the WordPieces in the order of their ids, filled up with [unusedN] to
    the requested size.

    `num_cut` of the learnt WordPieces, the rarest ones, found no line.
    """

    lines: list[str]
    num_learnt: int
    num_cut: int


def import_learner() -> types.ModuleType:
    """Imports and returns the module that learns WordPieces, of the package tensorflow-text.

    Raises:
        InputError: the package cannot be imported.
    """
    try:
        with quiet_imports():
            from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib
    except ImportError as error:
        raise InputError(
            f"a vocabulary is learnt by tensorflow-text, which cannot be imported ({error}); run "
            "pip install tensorflow-text, or run this command on Linux or macOS, since the package "
            "does not exist for Windows"
        ) from error
    return wordpiece_tokenizer_learner_lib


def ascii_characters(tokenizer: BasicTokenizer) -> frozenset[str]:
    """Returns the printable characters of ASCII that a tokenizer leaves as they are.

    Other texts than those of the vocabulary have digits, brackets and the like.

    Args:
        tokenizer: the tokenizer, which may lower-case text.
    """
    printable = map(chr, range(ord("!"), ord("~") + 1))
    return frozenset(char for char in printable if tokenizer.tokenize(char) == [char])


def select_words(
    counts: Mapping[str, int],
    character_coverage: float,
    max_words: int,
    protected_characters: Collection[str] = (),
) -> Words:
    """Selects the words to learn from: the commonest ones without overlong words and rare
    characters.

    Args:
        counts: the number of occurrences of each word.
        character_coverage: the share of all occurrences of characters that the kept characters
            have, the commonest first. A word with any other character is left out.
        max_words: the largest number of words; the commonest ones up to 50 characters are kept.
        protected_characters: characters that are kept however rare they are.

    Raises:
        InputError: no word is left.
    """
    commonest = sorted(
        [(word, count) for word, count in counts.items() if len(word) <= _LONGEST_WORD],
        key=lambda item: (-item[1], item[0]),
    )[:max_words]
    common_characters = _commonest_characters(commonest, character_coverage).union(
        protected_characters
    )
    words = [(word, count) for word, count in commonest if common_characters.issuperset(word)]
    if not words:
        raise InputError(
            "--input_file: no word to learn from; give files with text, or raise "
            "--character_coverage"
        )
    characters = frozenset(char for word, _ in words for char in word)
    left_out = frozenset().union(*counts) - characters.union(protected_characters)
    share = sum(count for _, count in words) / sum(counts.values())
    return Words(words, characters, left_out, share)


def learn_vocabulary(
    words: Words, vocab_size: int, min_frequency: int, tokenizer: BasicTokenizer
) -> Vocabulary:
    """Learns the special tokens, the single characters, and longer WordPieces that are frequent
    enough.

    The single characters are those of the words and, if the vocabulary has room for them, all
    printable ones of ASCII.

    Args:
        words: the words to learn from.
        vocab_size: the number of lines of the vocabulary.
        min_frequency: the number of times that a longer WordPiece must occur.
        tokenizer: decides which characters are words by themselves, so that they never continue
            one.

    Raises:
        InputError: `vocab_size` does not hold the special tokens and the single characters.
    """
    # Punctuation and ideographs are words of their own and never continue one.
    alone, single = _single_pieces(words.characters, tokenizer)
    _, single_with_ascii = _single_pieces(words.characters | ascii_characters(tokenizer), tokenizer)
    if len(SPECIAL_TOKENS) + len(single_with_ascii) <= vocab_size:
        single = single_with_ascii
    num_free = vocab_size - len(SPECIAL_TOKENS) - len(single)
    if num_free < 0:
        raise InputError(
            f"--vocab_size={vocab_size} does not hold {len(SPECIAL_TOKENS)} special tokens and "
            f"{len(single)} pieces of single characters; give at least {vocab_size - num_free}, or "
            "lower --character_coverage"
        )
    lowest, highest = _thresholds(words, num_free, min_frequency)
    # Top-down: substrings that occur often enough, longer ones before their parts. The learner
    # searches for the threshold that gives this size; there may be up to 5 % fewer, or fewer or
    # more if the bounds end the search. It returns the reserved tokens, the characters with and
    # without "##", then WordPieces by decreasing counts.
    learnt = import_learner().learn(
        words.counts,
        vocab_size + len(alone),
        list(SPECIAL_TOKENS),
        upper_thresh=highest,
        lower_thresh=lowest,
        max_input_tokens=-1,
        max_token_length=max(len(word) for word, _ in words.counts),
        max_unique_chars=len(words.characters),
    )
    longer = [
        piece
        for piece in learnt
        if len(piece.removeprefix("##")) > 1 and piece not in SPECIAL_TOKENS
    ]
    selected = single.union(longer[:num_free])
    pieces = [piece for piece in learnt if piece in selected]
    # Characters that the text does not have follow the others.
    pieces += sorted(single.difference(pieces))
    unused = [
        f"[unused{number}]" for number in range(vocab_size - len(SPECIAL_TOKENS) - len(pieces))
    ]
    return Vocabulary(
        [*SPECIAL_TOKENS, *pieces, *unused], len(pieces), max(0, len(longer) - num_free)
    )


def _single_pieces(
    characters: frozenset[str], tokenizer: BasicTokenizer
) -> tuple[set[str], set[str]]:
    """Returns the characters that are always words by themselves, and the pieces of one character.

    Characters that may continue a word have two pieces.
    """
    alone = {char for char in characters if tokenizer.tokenize(f"a{char}a") == ["a", char, "a"]}
    return alone, set(characters | {f"##{char}" for char in characters - alone})


def _commonest_characters(word_counts: list[tuple[str, int]], coverage: float) -> set[str]:
    counts = collections.Counter()
    for word, count in word_counts:
        for char in word:
            counts[char] += count
    characters = set()
    num_missing = coverage * counts.total()
    for char, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if num_missing <= 0:
            break
        characters.add(char)
        num_missing -= count
    return characters


def _thresholds(words: Words, num_pieces: int, min_frequency: int) -> tuple[int, int]:
    """Returns bounds of the threshold that gives `num_pieces` WordPieces longer than one character.

    Narrow bounds save time, because every step of the learner's search takes long. Every word that
    occurs as often as the threshold becomes a WordPiece, so at most `num_pieces` words may. In
    practice at least an eighth of the WordPieces are whole words.
    """
    counts = [count for word, count in words.counts if len(word) > 1] or [1]
    lowest = counts[num_pieces] if num_pieces < len(counts) else 1
    highest = counts[min(num_pieces // 8, len(counts) - 1)]
    return max(lowest, min_frequency), max(highest, min_frequency)
