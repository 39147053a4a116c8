"""WordPiece tokenization in plain Python, token for token as the original release.

A word gives the same WordPieces in every context, so FullTokenizer keeps the result of each word,
and the tokenization of running text needs only one look-up per word.
"""

import itertools
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

import numpy as np

from official_bert import model_hub
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.reading import field, is_of_kind
from official_bert.tokenizer_call import TransformersNames, model_inputs, transformers_inputs
from official_bert.tokenizer_config import (
    MAX_INPUT_CHARS_PER_WORD,
    TokenizerConfig,
    unknown_casing,
    warn_of_casing,
)
from official_bert.tokenizer_files import TOKENIZER_CONFIG_NAME, TOKENIZER_NAME

# The pieces of model inputs that stand for no part of the text.
_FRAME = ("[PAD]", "[CLS]", "[SEP]")

# Each ideograph is a word of its own; kana, Hangul and U+3007 form words like letters.
_CJK = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f"
)
# The characters other than the space that separate words. Some control characters that str.split()
# takes for whitespace are absent (U+000B, U+000C, U+001C to U+001F, U+0085): the rules remove them
# and join the text around them.
_BLANK = "\t\n\r\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_is_cjk = re.compile(f"[{_CJK}]").match
_has_boundary = re.compile(f"[{_CJK}{_BLANK}]").search
_split_at_boundaries = re.compile(f"[{_CJK}{_BLANK}]|[^{_CJK}{_BLANK}]+").findall
# The parts of a text whose WordPieces, in order, are those of the text: what is between blanks, and
# each ideograph.
find_words = re.compile(f"[{_CJK}]|[^{_CJK}{_BLANK} ]+").finditer
_ascii_tokens = re.compile(r"[0-9A-Za-z]+|[!-/:-@\[-`{-~]").findall

_CACHED_WORDS = 1 << 19  # about 100 MB when full
_LONGEST_CACHED_WORD = 64
_MOST_PIECES = 1 << 24  # a larger id in a file would fill the memory with lines
_LINE_END, _ID_OF_LINE_END = "\n", -1


def validate_case_matches_checkpoint(do_lower_case: bool, init_checkpoint: str | None):
    """Raises InputError if the casing flag contradicts the folder name of a released checkpoint."""
    match = re.match("^.*?([A-Za-z0-9_-]+)/bert_model.ckpt", init_checkpoint or "")
    if match is None:
        return
    name = match.group(1)
    # Of the later releases the original knows no casing.
    is_known = any(
        name in names for release, names in model_hub.RELEASES.items() if release < "2019"
    )
    if is_known and bool(do_lower_case) == model_hub.is_cased(name):
        kind = "cased" if do_lower_case else "uncased"
        raise InputError(
            f"--do_lower_case={bool(do_lower_case)}: {init_checkpoint} is the {kind} model {name}; "
            f"give --do_lower_case={not do_lower_case}, or rename the folder if it holds another "
            "model"
        )


def convert_to_unicode(text: str | bytes) -> str:
    """Converts text to str; bytes are decoded as UTF-8, and invalid bytes are left out."""
    if isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    raise ValueError(f"text must be str or UTF-8 bytes, got {type(text).__name__}")


def printable_text(text: str | bytes) -> str:
    """Converts text for print() and the log; since Python 3 this is the same as convert_to_unicode."""
    return convert_to_unicode(text)


def vocabulary_lines(vocab_file: str) -> list[str]:
    """Reads the lines of a vocabulary, or makes those of the WordPieces in a tokenizer.json."""
    if os.path.basename(vocab_file) != TOKENIZER_NAME:
        return list(reading.read_lines(vocab_file))
    model = field(reading.read_json(vocab_file), "model", dict, vocab_file)
    vocab = (
        field(model, "vocab", dict, f"{vocab_file}: model")
        if model.get("type") == "WordPiece"
        else {}
    )
    if not vocab or not all(
        is_of_kind(number, int) and 0 <= number < _MOST_PIECES for number in vocab.values()
    ):
        raise InputError(
            f"{vocab_file}: holds no vocabulary of WordPieces; only models with WordPieces can be "
            "used"
        )
    return _lines_of(vocab)


def load_vocab(vocab_file: str) -> dict[str, int]:
    """Reads a vocabulary with one WordPiece on each line; its id is the index of the line from 0.

    Of a tokenizer.json it is the vocabulary in the file.

    Only "\\n" ends a line. A blank line is the WordPiece "". A repeated WordPiece keeps its
    position in the dictionary and takes its last id. All other lines therefore keep their ids.
    """
    return {line.strip(): number for number, line in enumerate(vocabulary_lines(vocab_file))}


def write_vocabulary(vocab: Mapping[str, int], path: str):
    """Writes a vocabulary file for a lookup table, whose lines all differ: useless ones become
    "[line N]".
    """
    with writing.replacing(path) as file:
        file.writelines(f"{line}\n" for line in _lines_of(vocab))


def _lines_of(vocab: Mapping[str, int]) -> list[str]:
    lines = [f"[line {number}]" for number in range(1 + max(vocab.values()))]
    for piece, number in vocab.items():
        if piece.split() == [piece]:
            lines[number] = piece
    return lines


def convert_by_vocab(vocab: Mapping, items: Iterable) -> list:
    """Looks up every item; an unknown item raises KeyError."""
    return [vocab[item] for item in items]


def convert_tokens_to_ids(vocab: Mapping[str, int], tokens: Iterable[str]) -> list[int]:
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab: Mapping[int, str], ids: Iterable[int]) -> list[str]:
    return convert_by_vocab(inv_vocab, ids)


def whitespace_tokenize(text: str) -> list[str]:
    return text.split()


class FullTokenizer(TransformersNames):
    """Splits text into words with BasicTokenizer, and words into WordPieces with
    WordpieceTokenizer.

    Args:
        vocab_file: the vocabulary, one WordPiece on each line.
        do_lower_case: whether the text is lower-cased first.
        strip_accents: whether accents are removed; None means the value of do_lower_case. Use False
            for Korean and other scripts whose letters consist of combining marks.

    Attributes:
        vocab: WordPiece -> id, in the order of the file.
        inv_vocab: id -> WordPiece.
        model_max_length: the number of positions of the model whose folder `from_pretrained` read,
            as its tokenizer_config.json says; None for no limit.
    """

    def __init__(
        self, vocab_file: str, do_lower_case: bool = True, strip_accents: bool | None = None
    ):
        self.vocab = load_vocab(vocab_file)
        self.model_max_length: int | None = None
        self.inv_vocab = {number: piece for piece, number in self.vocab.items()}
        self.basic_tokenizer = BasicTokenizer(do_lower_case, strip_accents)
        self.wordpiece_tokenizer = WordpieceTokenizer(self.vocab)
        self._start_caches()

    @classmethod
    def from_pretrained(cls, folder: str) -> Self:
        """Makes the tokenizer of a model by its vocab.txt, or else tokenizer.json, and
        tokenizer_config.json.

        Args:
            folder: the folder of a model, a checkpoint in it, or the name of a model, which is
                downloaded.

        Raises:
            InputError: there is no such folder or checkpoint, the folder has no vocabulary, or a
                file is corrupt.
        """
        folder = model_hub.local_path(folder)
        if not files.is_folder(folder):
            if not files.exists(f"{folder}.index") and not files.exists(folder):
                raise InputError(
                    f"{folder}: no folder and no checkpoint is there; give the folder of a model"
                )
            folder = os.path.dirname(folder)
        config = TokenizerConfig.read(folder) or TokenizerConfig()
        if config.do_lower_case is None:
            raise unknown_casing(os.path.join(folder, TOKENIZER_CONFIG_NAME))
        paths = [os.path.join(folder, name) for name in ("vocab.txt", TOKENIZER_NAME)]
        vocab_file = next(filter(files.exists, paths), paths[0])
        tokenizer = cls(
            files.check_model_file(vocab_file), config.do_lower_case, config.strip_accents
        )
        tokenizer.model_max_length = config.model_max_length
        warn_of_casing(tokenizer.vocab, config.do_lower_case, vocab_file)
        return tokenizer

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the WordPieces of a text, without special tokens and without truncation."""
        return self._look_up(self._pieces, text)

    def encode(
        self, text: str | bytes, text_pair: str | bytes | None = None, **of_transformers
    ) -> list[int]:
        """Returns convert_tokens_to_ids(tokenize(text)), but without making the token strings.

        With a second text or an argument of transformers, such as `add_special_tokens=True`, the
        ids are those of a
        call: [CLS] text [SEP] text_pair [SEP].

        Raises:
            KeyError: a word has no WordPieces, and the vocabulary has no [UNK].
        """
        if text_pair is None and not of_transformers:
            return self._look_up(self._ids, text)
        return self(text, text_pair, **({"padding": False} | of_transformers))["input_ids"]

    def encode_lines(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Encodes many lines without "\\n" at once, which is several times faster than one by one.

        Returns:
            int32[tokens]: the ids of all lines in order, those of each line as `encode` returns
            them; int64[lines]: the number of ids of each line.
        """
        text = f" {_LINE_END} ".join(lines)
        text = (
            self._separated(text)
            if text.isascii()
            else f" {_LINE_END} ".join(map(self._separated, lines))
        )
        ids = itertools.chain.from_iterable(map(self._line_ids.__getitem__, text.split(" ")))
        ids = np.fromiter(ids, np.int32)
        ends = np.flatnonzero(ids == _ID_OF_LINE_END)
        if len(ends) != max(len(lines) - 1, 0):
            raise ValueError("a line contains a line end")
        bounds = np.concatenate([[-1], ends, [len(ids)]])
        return np.delete(ids, ends), np.diff(bounds)[: len(lines)] - 1

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Looks up the id of every token; a token that is not in the vocabulary raises KeyError."""
        return convert_by_vocab(self.vocab, tokens)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Looks up the token of every id; an id that is not in the vocabulary raises KeyError."""
        return convert_by_vocab(self.inv_vocab, ids)

    def __call__(
        self,
        texts: str | Iterable[str],
        pairs: str | Iterable[str | None] | None = None,
        max_seq_length: int | None = None,
        **of_transformers,
    ) -> dict:
        """Makes the inputs of a model from texts or from pairs of texts.

            BertModel(config)(**tokenizer(["A text.", "Another one."]))
            BertModel(config)(tokenizer(["A text.", "Another one."], padding=True,
            return_tensors="tf"))

        Args:
            texts: a text, which is a batch of one, or several; no tuple, which could mean a pair.
            pairs: the second text of each, of which one without tokens counts as absent; None for
                single texts.
            max_seq_length: the number of tokens, special ones included, to which examples are
                truncated; the longer text of a pair loses its last tokens first. None truncates
                nothing.
            **of_transformers: with any of the arguments of transformers' tokenizers the call does
                what theirs does. They are `text_pair`, another name of `pairs`, and, with their
                defaults, `padding=False` ("longest" or True, "max_length"), `truncation=None`
                ("longest_first" or True, "only_first", "only_second"), `max_length=None`,
                `stride=0`, `return_tensors=None` ("np", "tf"), `return_overflowing_tokens=False`,
                `return_offsets_mapping=False`, `return_special_tokens_mask=False`,
                `return_length=False`, `return_token_type_ids=True`, `return_attention_mask=True`
                and `add_special_tokens=True`.

        Returns:
            `input_ids`, `input_mask` and `segment_ids`, each int32[B, S], padded with 0 to the
            longest example. With an argument of transformers `input_ids`, `token_type_ids`,
            `attention_mask` and, if asked for, `offset_mapping` and `overflow_to_sample_mapping`;
            [MASK] and the like in a text then stay one token.

        Raises:
            InputError: an argument has another form, or the vocabulary lacks [CLS], [SEP] or [UNK].
        """
        if not of_transformers:
            return model_inputs(self, texts, pairs, max_seq_length)
        if max_seq_length is not None:
            raise InputError(
                "max_seq_length: is called max_length beside arguments of transformers"
            )
        return transformers_inputs(self, texts, pairs, **of_transformers)

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Returns the text of a sequence of ids: its words with a space between them, and
        punctuation apart.

        Args:
            ids: int[S], such as a row of `input_ids`.
            skip_special_tokens: whether [CLS], [SEP] and [PAD] are left out. [UNK] and [MASK] stay,
                since they stand for a word of the text.

        Raises:
            InputError: the ids are no sequence of whole numbers, or one of them is not in the
                vocabulary.
        """
        ids = _id_list(ids)
        for number in ids:
            if number not in self.inv_vocab:
                raise InputError(f"ids: {number} is not in the vocabulary; give ids that it made")
        kept = [
            piece
            for piece in self.convert_ids_to_tokens(ids)
            if not skip_special_tokens or piece not in _FRAME
        ]
        return " ".join(kept).replace(" ##", "")

    def save_pretrained(self, folder: str):
        """Writes vocab.txt, tokenizer_config.json and tokenizer.json, of which `from_pretrained`
        makes the tokenizer.

        A model's `save_pretrained` writes them beside its weights, with its tokenizer as an
        argument.
        """
        basic = self.basic_tokenizer
        config = TokenizerConfig(basic.do_lower_case, basic.strip_accents, self.model_max_length)
        texts = {
            TOKENIZER_CONFIG_NAME: config.to_json_string(),
            TOKENIZER_NAME: config.to_tokenizer_json(self.vocab),
        }
        files.make_folder(folder)
        write_vocabulary(self.vocab, os.path.join(folder, "vocab.txt"))
        for name, text in texts.items():
            if text is not None:
                with writing.replacing(os.path.join(folder, name)) as file:
                    file.write(text)

    def _start_caches(self):
        basic, wordpiece = self.basic_tokenizer, self.wordpiece_tokenizer
        pieces = {piece: piece for piece in (*self.vocab, wordpiece.unk_token)}
        self._pieces = _WordCache(basic, wordpiece, pieces)  # shares one string per WordPiece
        self._ids = _WordCache(basic, wordpiece, self.vocab)
        self._line_ids = _WordCache(basic, wordpiece, self.vocab, (_ID_OF_LINE_END,))

    def _look_up(self, cache: "_WordCache", text: str | bytes) -> list:
        text = self._separated(convert_to_unicode(text))
        return list(itertools.chain.from_iterable(map(cache.__getitem__, text.split(" "))))

    def _separated(self, text: str) -> str:
        """Returns ASCII text in the tokenizer's case and with spaces round the commonest
        punctuation.
        """
        # Punctuation after a capital sigma decides which small sigma it becomes.
        if not text.isascii():
            return text
        if self.basic_tokenizer.do_lower_case:
            text = text.lower()
        return text.replace(",", " , ").replace(".", " . ")

    def __getstate__(self):
        return {
            name: value for name, value in vars(self).items() if not isinstance(value, _WordCache)
        }

    def __setstate__(self, state):
        vars(self).update(state)
        self._start_caches()


def _id_list(ids) -> list[int]:
    """Returns int[S] as a list; raises InputError for another form or type."""
    try:
        array = np.asarray(ids)
    except ValueError:  # rows of different lengths
        array = np.zeros((1, 1), int)
    if array.ndim != 1:
        raise InputError(
            "ids: must be those of one sequence; decode the rows of a batch one by one"
        )
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"ids: must be whole numbers, got {array.dtype}")
    return array.tolist()


class BasicTokenizer:
    """Cleans text, separates ideographs and punctuation, and splits at whitespace.

    Args:
        do_lower_case: whether the text is lower-cased.
        strip_accents: whether characters are decomposed (NFD) and combining marks removed; None
            means the value of do_lower_case.
    """

    def __init__(self, do_lower_case: bool = True, strip_accents: bool | None = None):
        self.do_lower_case = do_lower_case
        self.strip_accents = do_lower_case if strip_accents is None else strip_accents

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the words, ideographs and punctuation characters of a text, in order."""
        text = convert_to_unicode(text)
        if text.isascii():
            if not text.isprintable():
                text = text.translate(_CLEANED)
            return _ascii_tokens(text.lower() if self.do_lower_case else text)
        text = " ".join(text.translate(_CLEANED).split())
        if self.do_lower_case:
            text = text.lower()
        if self.strip_accents:
            return unicodedata.normalize("NFD", text).translate(_SEPARATED_WITHOUT_ACCENTS).split()
        return text.translate(_SEPARATED).split()


class WordpieceTokenizer:
    """Splits words into WordPieces, from the left, always taking the longest one in the vocabulary.

    Args:
        vocab: a mapping whose keys are the WordPieces; those that continue a word begin with "##".
        unk_token: the token for a word that is too long or does not consist of WordPieces.
        max_input_chars_per_word: the length of the longest word that is split, in characters.
    """

    def __init__(
        self,
        vocab: Mapping[str, int],
        unk_token: str = "[UNK]",
        max_input_chars_per_word: int = MAX_INPUT_CHARS_PER_WORD,
    ):
        self.vocab = vocab
        self.unk_token = unk_token
        self.max_input_chars_per_word = max_input_chars_per_word

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the WordPieces of a text whose words are separated by whitespace."""
        return list(
            itertools.chain.from_iterable(map(self.split_word, convert_to_unicode(text).split()))
        )

    def split_word(self, word: str) -> list[str]:
        """Returns the WordPieces of one word, or unk_token for the whole word."""
        if len(word) > self.max_input_chars_per_word:
            return [self.unk_token]
        vocab = self.vocab
        pieces = []
        rest, joiner = word, 0  # the rest of the word, and the length of the "##" before it
        while len(rest) > joiner:
            for end in range(len(rest), joiner, -1):
                piece = rest[:end]
                if piece in vocab:
                    break
            else:
                return [self.unk_token]
            pieces.append(piece)
            rest, joiner = "##" + rest[end:], 2
        return pieces


class _WordCache(dict):
    """A bounded cache: word -> tuple of the values of its WordPieces, which are their strings or
    their ids.

    A word is any text without a space. The tokenizers always split at a space, so the WordPieces of
    a text are those of its words in order. When the newer half of the cache is full it becomes the
    older one, whose words are dropped. A look-up in the older half copies the word to the newer
    half, so common words stay. `line_end` has the values of "\\n" where it is a word, which has no
    WordPieces.
    """

    def __init__(
        self,
        basic: BasicTokenizer,
        wordpiece: WordpieceTokenizer,
        values: Mapping[str, object],
        line_end: tuple = (),
    ):
        super().__init__()
        self._line_end = line_end
        self._basic = basic
        self._wordpiece = wordpiece
        self._value_of = values.__getitem__
        self._older = {}

    def __missing__(self, word: str) -> tuple:
        plain = word.isascii() and word.isprintable()
        if not plain and len(word) > 1 and _has_boundary(word):
            # Chinese sentences and whole lines, which hardly occur twice, are not cached but their
            # words are.
            return _joined(map(self.__getitem__, _split_at_boundaries(word)))
        values = self._older.get(word) or self._compute(word, plain)
        if len(word) <= _LONGEST_CACHED_WORD:
            if len(self) >= _CACHED_WORDS // 2:
                self._older = dict(self)
                self.clear()
            self[word] = values
        return values

    def _compute(self, word: str, plain: bool) -> tuple:
        if word == _LINE_END:
            return self._line_end
        if not plain:
            return _joined(map(self._values_of, self._basic.tokenize(word)))
        tokens = _ascii_tokens(word.lower() if self._basic.do_lower_case else word)
        return (
            self._values_of(tokens[0])
            if len(tokens) == 1
            else _joined(map(self.__getitem__, tokens))
        )

    def _values_of(self, token: str) -> tuple:
        return tuple(map(self._value_of, self._wordpiece.split_word(token)))


def _joined(parts: Iterable[tuple]) -> tuple:
    return tuple(itertools.chain.from_iterable(parts))


def _is_whitespace(char: str) -> bool:
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def _is_control(char: str) -> bool:
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def _is_punctuation(char: str) -> bool:
    """Tells whether a character is punctuation in Unicode, or one of ASCII's symbols $ + < = > ^
    ` | ~.
    """
    return ("!" <= char <= "~" and not char.isalnum()) or unicodedata.category(char).startswith("P")


class _CharacterTable(dict):
    """A table for str.translate() that computes an entry when its character first occurs."""

    def __init__(self, rule: Callable[[str], str]):
        super().__init__()
        self._rule = rule

    def __missing__(self, code: int) -> str:
        self[code] = replacement = self._rule(chr(code))
        return replacement


def _cleaned(char: str) -> str:
    if char in "\0\ufffd" or _is_control(char):
        return ""
    if _is_whitespace(char):
        return " "
    return f" {char} " if _is_cjk(char) else char


def _separated(char: str) -> str:
    return f" {char} " if _is_punctuation(char) else char


def _separated_without_accents(char: str) -> str:
    return "" if unicodedata.category(char) == "Mn" else _separated(char)


_CLEANED = _CharacterTable(_cleaned)
_SEPARATED = _CharacterTable(_separated)
_SEPARATED_WITHOUT_ACCENTS = _CharacterTable(_separated_without_accents)
