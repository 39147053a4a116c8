"""Learning a WordPiece vocabulary: word counts in, the lines of a vocabulary file out."""

import collections
import dataclasses
from collections.abc import Mapping

from official_bert.data.text.graph_tokenizer import learn_pieces
from official_bert.errors import InputError
from official_bert.tokenization import BasicTokenizer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LONGEST_WORD = 50  # in characters: what is longer is no word, and the learner's time grows with the square


@dataclasses.dataclass(frozen=True)
class Words:
    """What a vocabulary is learnt from.

    Attributes:
        counts: words and how often they occur, the commonest first, equal ones by name.
        characters: the characters that they are made of.
        share: share of the text's words that these are.
    """

    counts: list[tuple[str, int]]
    characters: frozenset[str]
    share: float


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """A learnt vocabulary.

    Attributes:
        lines: pieces in the order of their ids, filled with [unusedN] to the size asked for.
        num_learnt: pieces that are neither special tokens nor [unusedN].
        num_cut: rare pieces that were learnt and left out, for want of lines.
    """

    lines: list[str]
    num_learnt: int
    num_cut: int


def select_words(counts: Mapping[str, int], character_coverage: float, max_words: int) -> Words:
    """Leaves out rare characters with the words that hold them, overlong words, and all beyond `max_words`.

    Args:
        counts: word -> occurrences.
        character_coverage: share of all characters that is kept, the commonest first.
        max_words: distinct words to keep.

    Raises:
        InputError: no word is left.
    """
    commonest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    commonest = [(word, count) for word, count in commonest if len(word) <= _LONGEST_WORD][:max_words]
    kept = _commonest_characters(commonest, character_coverage)
    words = [(word, count) for word, count in commonest if kept.issuperset(word)]
    if not words:
        raise InputError(
            "--input_file: no word to learn from; give files with text, or raise --character_coverage"
        )
    characters = frozenset(char for word, _ in words for char in word)
    return Words(words, characters, sum(count for _, count in words) / sum(counts.values()))


def learn_vocabulary(
    words: Words, vocab_size: int, min_frequency: int, tokenizer: BasicTokenizer
) -> Vocabulary:
    """Learns the pieces of a vocabulary: special tokens, characters, then the commonest pieces.

    Args:
        words: what to learn from.
        vocab_size: lines of the vocabulary.
        min_frequency: occurrences below which no piece is learnt but the characters.
        tokenizer: the rules by which the words were found.

    Raises:
        InputError: a size that does not hold the special tokens and the characters.
    """
    # Punctuation and ideographs are words of their own and never continue one.
    alone = {char for char in words.characters if tokenizer.tokenize(f"a{char}a") == ["a", char, "a"]}
    single = words.characters | {f"##{char}" for char in words.characters - alone}
    num_free = vocab_size - len(SPECIAL_TOKENS) - len(single)
    if num_free < 0:
        raise InputError(
            f"--vocab_size={vocab_size} does not hold {len(SPECIAL_TOKENS)} special tokens and {len(single)} pieces of "
            f"single characters; give at least {vocab_size - num_free}, or lower --character_coverage"
        )

    learnt = learn_pieces(
        words.counts, vocab_size + len(alone), SPECIAL_TOKENS, *_thresholds(words, num_free, min_frequency)
    )
    longer = [piece for piece in learnt if len(piece.removeprefix("##")) > 1 and piece not in SPECIAL_TOKENS]
    kept = single.union(longer[:num_free])
    pieces = [piece for piece in learnt if piece in kept]
    unused = [f"[unused{number}]" for number in range(vocab_size - len(SPECIAL_TOKENS) - len(pieces))]
    return Vocabulary([*SPECIAL_TOKENS, *pieces, *unused], len(pieces), max(0, len(longer) - num_free))


def _commonest_characters(word_counts: list[tuple[str, int]], coverage: float) -> set[str]:
    counts = collections.Counter()
    for word, count in word_counts:
        for char in word:
            counts[char] += count
    kept = set()
    num_missing = coverage * counts.total()
    for char, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if num_missing <= 0:
            break
        kept.add(char)
        num_missing -= count
    return kept


def _thresholds(words: Words, num_pieces: int, min_frequency: int) -> tuple[int, int]:
    """Bounds of the threshold that gives `num_pieces` longer pieces: every step of the learner's search takes long.

    Every word as common as the threshold is a piece, so at most `num_pieces` words are. That they are fewer than
    an eighth of the pieces is not to be expected.
    """
    counts = [count for word, count in words.counts if len(word) > 1] or [1]
    lowest = counts[num_pieces] if num_pieces < len(counts) else 1
    highest = counts[min(num_pieces // 8, len(counts) - 1)]
    return max(lowest, min_frequency), max(highest, min_frequency)
