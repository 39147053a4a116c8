"""WordPiece tokenization in plain Python, token for token as the original release.

A word has the same WordPieces in every context. FullTokenizer therefore caches the result of each
word, and the tokenization of running text needs only one look-up per word.
"""

import itertools
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from official_bert import catalog, model_hub
from official_bert.added_tokens import MOST_PIECES, read_markers
from official_bert.characters import (
    CLEANED,
    SEPARATED,
    SEPARATED_WITHOUT_ACCENTS,
    ascii_tokens,
)
from official_bert.characters import find_words as find_words
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.reading import field, has_type
from official_bert.tokenizer_call import model_inputs
from official_bert.tokenizer_config import (
    MAX_INPUT_CHARS_PER_WORD,
    TokenizerConfig,
    unknown_casing,
    warn_about_casing,
)
from official_bert.tokenizer_files import TOKENIZER_CONFIG_NAME, TOKENIZER_NAME
from official_bert.word_cache import LINE_END, WordCache

# The pieces of model inputs that represent no part of the text.
_FRAME = ("[PAD]", "[CLS]", "[SEP]")

_PLACEHOLDER = "[line {}]"  # the line of an id that no piece has
_LINE_END_ID = -1


def validate_case_matches_checkpoint(do_lower_case: bool, init_checkpoint: str | None) -> None:
    """Compares the casing flag with the folder name of a released checkpoint.

    Args:
        do_lower_case: whether text is lower-cased.
        init_checkpoint: the path of the checkpoint; None for none.

    Raises:
        InputError: the flag contradicts the name.
    """
    match = re.match("^.*?([A-Za-z0-9_-]+)/bert_model.ckpt", init_checkpoint or "")
    if match is None:
        return
    name = match.group(1)
    # The original does not list the casing of later releases.
    early_names: list[str] = []
    for release, names in model_hub.RELEASES.items():
        if release < "2019":
            early_names += names
    if name in early_names and bool(do_lower_case) == model_hub.is_cased(name):
        kind = "cased" if do_lower_case else "uncased"
        raise InputError(
            f"--do_lower_case={bool(do_lower_case)}: {init_checkpoint} "
            f"is the {kind} model {name}; "
            f"give --do_lower_case={not do_lower_case}, or rename the folder if it holds another "
            "model"
        )


def convert_to_unicode(text: str | bytes) -> str:
    """Converts a text to str.

    Args:
        text: the text; bytes are decoded as UTF-8, and invalid bytes are left out.

    Raises:
        ValueError: the argument has another type.
    """
    if isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    raise ValueError(f"text must be str or UTF-8 bytes, got {type(text).__name__}")


def printable_text(text: str | bytes) -> str:
    """Converts a text for print() and the log; in Python 3 this is what convert_to_unicode does.

    Args:
        text: the text, or its UTF-8 bytes.
    """
    return convert_to_unicode(text)


def vocabulary_lines(vocab_file: str) -> list[str]:
    """Reads the lines of a vocabulary, or makes those of the WordPieces in a tokenizer.json.

    Markers that PyLate added to the tokenizer are lines, too: see `read_markers`.

    Args:
        vocab_file: the path of a vocab.txt or of a tokenizer.json.

    Raises:
        InputError: the file is corrupt, or has no WordPieces, or a piece has the id of a marker.
    """
    if os.path.basename(vocab_file) == TOKENIZER_NAME:
        lines = _read_library_lines(vocab_file)
    else:
        lines = list(reading.read_lines(vocab_file))
    for marker, number in read_markers(os.path.dirname(vocab_file)).items():
        lines += [_PLACEHOLDER.format(row) for row in range(len(lines), number + 1)]
        piece = lines[number].strip()
        if piece not in (marker, _PLACEHOLDER.format(number)):
            raise InputError(
                f"{vocab_file}: the piece {piece!r} has the id {number}, which the added token "
                f"{marker!r} has in another file; restore the files of the tokenizer"
            )
        lines[number] = marker
    return lines


def _read_library_lines(vocab_file: str) -> list[str]:
    """Makes the lines of the WordPieces in a tokenizer.json."""
    content = reading.read_json(vocab_file)
    model = field(content, "model", dict, vocab_file)
    vocab = {}
    if model.get("type") == "WordPiece":
        vocab = field(model, "vocab", dict, f"{vocab_file}: model")
    is_valid = all(has_type(number, int) and 0 <= number < MOST_PIECES for number in vocab.values())
    if not vocab or not is_valid:
        raise InputError(
            f"{vocab_file}: holds no vocabulary of WordPieces; only models with WordPieces can be "
            "used"
        )
    return _make_lines(vocab)


def load_vocab(vocab_file: str) -> dict[str, int]:
    """Reads a vocabulary with one WordPiece on each line; its id is the index of the line from 0.

    Only "\\n" ends a line. A blank line is the WordPiece "". A repeated WordPiece keeps its
    position in the dictionary and gets its last id. All other lines therefore keep their ids.

    Args:
        vocab_file: the path of a vocab.txt or of a tokenizer.json.

    Returns:
        WordPiece -> id.
    """
    lines = vocabulary_lines(vocab_file)
    return {line.strip(): number for number, line in enumerate(lines)}


def write_vocabulary(vocab: Mapping[str, int], path: str) -> None:
    """Writes a vocabulary file whose lines all differ, as a lookup table needs it.

    Args:
        vocab: WordPiece -> id. A line without a WordPiece becomes "[line N]".
        path: the path of the file.
    """
    with writing.replacing(path) as file:
        file.writelines(f"{line}\n" for line in _make_lines(vocab))


def _make_lines(vocab: Mapping[str, int]) -> list[str]:
    num_lines = 1 + max(vocab.values())
    lines = [_PLACEHOLDER.format(number) for number in range(num_lines)]
    for piece, number in vocab.items():
        if piece.split() == [piece]:
            lines[number] = piece
    return lines


def convert_by_vocab(vocab: Mapping, items: Iterable) -> list:
    """Looks up every item.

    Args:
        vocab: item -> value.
        items: the items.

    Raises:
        KeyError: the vocabulary lacks an item.
    """
    return [vocab[item] for item in items]


def convert_tokens_to_ids(vocab: Mapping[str, int], tokens: Iterable[str]) -> list[int]:
    """Looks up the id of every token, as `convert_by_vocab` does.

    Args:
        vocab: token -> id.
        tokens: the tokens.

    Raises:
        KeyError: the vocabulary lacks a token.
    """
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab: Mapping[int, str], ids: Iterable[int]) -> list[str]:
    """Looks up the token of every id, as `convert_by_vocab` does.

    Args:
        inv_vocab: id -> token.
        ids: the ids.

    Raises:
        KeyError: the vocabulary lacks an id.
    """
    return convert_by_vocab(inv_vocab, ids)


def whitespace_tokenize(text: str) -> list[str]:
    """Splits a text at whitespace.

    Args:
        text: the text. Whitespace around it is dropped.
    """
    return text.split()


class FullTokenizer:
    """Splits text into words with BasicTokenizer, and words into WordPieces with
    WordpieceTokenizer.

    Extensions add further arguments of a call, methods and properties.

    Args:
        vocab_file: the vocabulary, one WordPiece on each line.
        do_lower_case: whether the text is lower-cased first. None means that it is unknown, and
            the text keeps its case.
        strip_accents: whether accents are removed; None means the value of do_lower_case. Use False
            for Korean and other scripts whose letters consist of combining marks.

    Attributes:
        vocab: WordPiece -> id, in the order of the file.
        inv_vocab: id -> WordPiece.
        model_max_length: the number of positions of the model whose folder `from_pretrained` read,
            as its tokenizer_config.json says; None for no limit.

    Example:
        ```python
        from official_bert import FullTokenizer

        tokenizer = FullTokenizer.from_pretrained("quickstart_output/full/bert")
        tokenizer.tokenize("A train left.")
        features = tokenizer(["A train left.", "It was sunny."], max_seq_length=32)
        features["input_ids"].shape  # (2, 32)
        tokenizer.decode(features["input_ids"][0])  # "a train left ."
        ```
    """

    def __init__(
        self,
        vocab_file: str,
        do_lower_case: bool | None = True,
        strip_accents: bool | None = None,
    ):
        self.vocab = load_vocab(vocab_file)
        self.model_max_length: int | None = None
        self.inv_vocab = {number: piece for piece, number in self.vocab.items()}
        self.basic_tokenizer = BasicTokenizer(do_lower_case, strip_accents)
        self.wordpiece_tokenizer = WordpieceTokenizer(self.vocab)
        self._start_caches()

    @classmethod
    def from_pretrained(cls, folder: str) -> Self:
        """Makes the tokenizer of a model from the files in its folder.

        They are vocab.txt, or else tokenizer.json, and tokenizer_config.json.

        Args:
            folder: the folder of a model, a checkpoint in it, or the name of a model, which is
                downloaded.

        Raises:
            InputError: there is no such folder or checkpoint, the folder has no vocabulary, or a
                file is corrupt.
        """
        folder = model_hub.local_path(folder)
        if not files.is_folder(folder):
            if not model_hub.has_files(folder):
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
            files.check_model_file(vocab_file),
            config.do_lower_case,
            config.strip_accents,
        )
        tokenizer.model_max_length = config.model_max_length
        warn_about_casing(tokenizer.vocab, config.do_lower_case, vocab_file)
        return tokenizer

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the WordPieces of a text, without special tokens and without truncation.

        Args:
            text: the text, or its UTF-8 bytes.
        """
        return self._look_up(self._pieces, text)

    def encode(
        self,
        text: str | bytes,
        text_pair: str | bytes | None = None,
        **further: Any,
    ) -> list[int]:
        """Returns convert_tokens_to_ids(tokenize(text)), but without making the token strings.

        Args:
            text: a text.
            text_pair: a second text, for an extension: the ids are then those of a call,
                [CLS] text [SEP] text_pair [SEP].
            **further: arguments of an extension, by which the ids are those of a call, too.

        Raises:
            KeyError: a word has no WordPieces, and the vocabulary has no [UNK].
            TypeError: no extension has these arguments.
        """
        if text_pair is None and not further:
            return self._look_up(self._ids, text)
        return self._call_extension(text, text_pair, None, further)["input_ids"]

    def encode_lines(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Encodes many lines at once, which is several times faster than one by one.

        Args:
            lines: the lines, without "\\n".

        Returns:
            int32[tokens]: the ids of all lines in order, those of each line as `encode` returns
            them; int64[lines]: the number of ids of each line.
        """
        separator = f" {LINE_END} "
        text = separator.join(lines)
        if text.isascii():
            words = self._separate(text).split(" ")
        else:
            separate_lines = [self._separate(line) for line in lines]
            words = separator.join(separate_lines).split(" ")
        word_ids = map(self._line_ids.__getitem__, words)
        ids = np.fromiter(itertools.chain.from_iterable(word_ids), np.int32)
        ends = np.flatnonzero(ids == _LINE_END_ID)
        if len(ends) != max(len(lines) - 1, 0):
            raise ValueError("a line contains a line end")
        bounds = np.concatenate([[-1], ends, [len(ids)]])
        lengths = np.diff(bounds) - 1
        return np.delete(ids, ends), lengths[: len(lines)]

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Looks up the id of every token.

        Args:
            tokens: the tokens.

        Raises:
            KeyError: the vocabulary lacks a token.
        """
        return convert_by_vocab(self.vocab, tokens)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Looks up the token of every id.

        Args:
            ids: the ids.

        Raises:
            KeyError: the vocabulary lacks an id.
        """
        return convert_by_vocab(self.inv_vocab, ids)

    def __call__(
        self,
        texts: str | Iterable[str],
        pairs: str | Iterable[str | None] | None = None,
        max_seq_length: int | None = None,
        **further: Any,
    ) -> dict:
        """Makes the inputs of a model from texts or from pairs of texts.

            BertModel(config)(**tokenizer(["A text.", "Another one."]))

        Args:
            texts: a text, which is a batch of one, or several; no tuple, which could mean a pair.
            pairs: the second text of each, of which one without tokens counts as absent; None for
                single texts.
            max_seq_length: the number of tokens, special ones included, to which examples are
                truncated; the longer text of a pair loses its last tokens first. None truncates
                nothing.
            **further: arguments of an extension, which then makes the inputs. Those of
                transformers' tokenizers are in extensions/huggingface_api/tokenizer_inputs.py.

        Returns:
            `input_ids`, `input_mask` and `segment_ids`, each int32[B, S], padded with 0 to the
            longest example; or what the extension returns.

        Raises:
            InputError: an argument has another form, or the vocabulary lacks [CLS], [SEP] or [UNK].
            TypeError: no extension has these arguments.
        """
        if further:
            return self._call_extension(texts, pairs, max_seq_length, further)
        return model_inputs(self, texts, pairs, max_seq_length)

    def _call_extension(
        self,
        texts: Any,
        pairs: Any,
        max_seq_length: int | None,
        arguments: dict,
    ) -> dict:
        """Returns the inputs that the first extension with such a hook makes."""
        for tokenizer_call in catalog.hooks("tokenizer_call"):
            return tokenizer_call(self, texts, pairs, max_seq_length, arguments)
        names = ", ".join(arguments) or "text_pair"
        raise TypeError(f"{names}: the tokenizer has no such argument, and no extension adds it")

    def __getattr__(self, name: str) -> Any:
        return catalog.bind_member("tokenizer_members", self, name)

    def __len__(self) -> int:
        """Returns the number of ids, which is the `vocab_size` of a model of this vocabulary."""
        return 1 + max(self.vocab.values(), default=-1)

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Returns the text of a sequence of ids: its words and punctuation, separated by spaces.

        Args:
            ids: int[S], such as a row of `input_ids`.
            skip_special_tokens: whether [CLS], [SEP] and [PAD] are left out. [UNK] and [MASK] stay,
                because they represent a word of the text.

        Raises:
            InputError: the ids are no sequence of whole numbers, or one of them is not in the
                vocabulary.
        """
        ids = _list_ids(ids)
        for number in ids:
            if number not in self.inv_vocab:
                raise InputError(
                    f"ids: {number} is not in the vocabulary; give ids that it returned"
                )
        pieces = self.convert_ids_to_tokens(ids)
        if skip_special_tokens:
            pieces = [piece for piece in pieces if piece not in _FRAME]
        return " ".join(pieces).replace(" ##", "")

    def save_pretrained(self, folder: str) -> None:
        """Writes the files that `from_pretrained` reads.

        They are vocab.txt, tokenizer_config.json and tokenizer.json. A model's `save_pretrained`
        writes them, too, if the tokenizer is its argument.

        Args:
            folder: the folder, which is created if need be.
        """
        basic = self.basic_tokenizer
        config = TokenizerConfig(
            basic.do_lower_case,
            basic.strip_accents,
            self.model_max_length,
        )
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
        self._pieces = WordCache(basic, wordpiece, pieces)  # shares one string per WordPiece
        self._ids = WordCache(basic, wordpiece, self.vocab)
        self._line_ids = WordCache(basic, wordpiece, self.vocab, (_LINE_END_ID,))

    def _look_up(self, cache: WordCache, text: str | bytes) -> list:
        """Returns the values that a cache has for the words of a text."""
        text = self._separate(convert_to_unicode(text))
        word_values = map(cache.__getitem__, text.split(" "))
        return list(itertools.chain.from_iterable(word_values))

    def _separate(self, text: str) -> str:
        """Lower-cases ASCII text, if the tokenizer does, and puts spaces around "," and "."."""
        # In other text, the punctuation after a capital sigma decides which small sigma it becomes.
        if not text.isascii():
            return text
        if self.basic_tokenizer.do_lower_case:
            text = text.lower()
        return text.replace(",", " , ").replace(".", " . ")

    def __getstate__(self) -> dict[str, Any]:
        attributes = vars(self).items()
        return {name: value for name, value in attributes if not isinstance(value, WordCache)}

    def __setstate__(self, state: dict[str, Any]):
        vars(self).update(state)
        self._start_caches()


def _list_ids(ids: Any) -> list[int]:
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
    numbers: Any = array.tolist()
    return numbers


class BasicTokenizer:
    """Cleans text, separates ideographs and punctuation, and splits at whitespace.

    Args:
        do_lower_case: whether the text is lower-cased; None means the same as False.
        strip_accents: whether characters are decomposed (NFD) and combining marks removed; None
            means the value of do_lower_case.
    """

    def __init__(self, do_lower_case: bool | None = True, strip_accents: bool | None = None):
        self.do_lower_case = do_lower_case
        self.strip_accents = do_lower_case if strip_accents is None else strip_accents

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the words, ideographs and punctuation characters of a text, in order.

        Args:
            text: the text, or its UTF-8 bytes.
        """
        text = convert_to_unicode(text)
        if text.isascii():
            if not text.isprintable():
                text = text.translate(CLEANED)
            return ascii_tokens(text.lower() if self.do_lower_case else text)
        text = " ".join(text.translate(CLEANED).split())
        if self.do_lower_case:
            text = text.lower()
        if self.strip_accents:
            return unicodedata.normalize("NFD", text).translate(SEPARATED_WITHOUT_ACCENTS).split()
        return text.translate(SEPARATED).split()


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
        """Returns the WordPieces of a text.

        Args:
            text: the text, or its UTF-8 bytes, whose words are separated by whitespace.
        """
        words = convert_to_unicode(text).split()
        return list(itertools.chain.from_iterable(map(self.split_word, words)))

    def split_word(self, word: str) -> list[str]:
        """Returns the WordPieces of one word, or unk_token for the whole word.

        Args:
            word: the word.
        """
        if len(word) > self.max_input_chars_per_word:
            return [self.unk_token]
        vocab = self.vocab
        pieces = []
        rest = word  # the rest of the word, behind "##" if it is not the start
        joiner = 0  # the length of the "##"
        while len(rest) > joiner:
            for end in range(len(rest), joiner, -1):
                piece = rest[:end]
                if piece in vocab:
                    break
            else:
                return [self.unk_token]
            pieces.append(piece)
            rest = "##" + rest[end:]
            joiner = 2
        return pieces
