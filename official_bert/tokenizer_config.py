"""Reads and writes the settings of a tokenizer, and joins two texts to a model's input.

In: the folder of a model with Hugging Face's tokenizer_config.json. Out: a TokenizerConfig.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Self, TypeVar

from official_bert import tokenizer_files
from official_bert.io import errors
from official_bert.io.errors import InputError
from official_bert.tokenizer_files import SPECIAL_TOKENS

T = TypeVar("T")

MAX_INPUT_CHARS_PER_WORD = 200
# The share of pieces with capitals above which a vocabulary is cased. An uncased one has capitals
# only in control tokens such as <S>.
_CASED_SHARE = 0.001


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
    """The settings of a model's tokenizer.

    Attributes:
        do_lower_case: whether text is lower-cased. None, null in the file, means that it is
            unknown, so that the user must pass the flag.
        strip_accents: whether accents are removed; None means the value of do_lower_case.
        model_max_length: the number of positions of the model; None for no limit.
    """

    do_lower_case: bool | None = True
    strip_accents: bool | None = None
    model_max_length: int | None = None

    @property
    def strips_accents(self) -> bool | None:
        """Whether accents are removed; None if it is unknown."""
        return self.do_lower_case if self.strip_accents is None else self.strip_accents

    @classmethod
    def read(cls, folder: str) -> Self | None:
        """Reads the tokenizer_config.json and tokenizer.json of a folder.

        Args:
            folder: the folder of a model.

        Returns:
            The settings; None if the folder has neither file.

        Raises:
            InputError: a file is corrupt, or the tokenizer is of another kind.
        """
        settings = tokenizer_files.read_settings(folder)
        return None if settings is None else cls(**settings)

    def to_json_string(self) -> str:
        """Returns a tokenizer_config.json with which transformers' AutoTokenizer has our tokens."""
        content = {
            **dataclasses.asdict(self),
            **SPECIAL_TOKENS,
            "tokenize_chinese_chars": True,
            "tokenizer_class": "BertTokenizer",
        }
        return json.dumps(content, indent=2)

    def to_tokenizer_json(self, vocab: Mapping[str, int]) -> str | None:
        """Returns a tokenizer.json that makes Hugging Face's library tokenizer give our ids.

        These habits of the library differ:

        - The name of a special token in a text is that token.
        - A capital sigma at the end of a word becomes the sigma of its middle.
        - Tables of an older Unicode define accents and punctuation.

        Args:
            vocab: WordPiece -> id.

        Returns:
            The content; None if the casing is unknown, or the vocabulary lacks [UNK], [CLS] or
            [SEP].
        """
        if self.do_lower_case is None or not {"[UNK]", "[CLS]", "[SEP]"} <= vocab.keys():
            return None
        special_tokens = {
            vocab[token]: token for token in SPECIAL_TOKENS.values() if token in vocab
        }
        added_tokens = []
        for number in sorted(special_tokens):
            added_tokens.append(
                {
                    "id": number,
                    "content": special_tokens[number],
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    "normalized": False,
                    "special": True,
                }
            )
        cls = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
        first = {"Sequence": {"id": "A", "type_id": 0}}
        first_sep = {"SpecialToken": {"id": "[SEP]", "type_id": 0}}
        second = {"Sequence": {"id": "B", "type_id": 1}}
        second_sep = {"SpecialToken": {"id": "[SEP]", "type_id": 1}}
        frame = {}
        for name in ("[CLS]", "[SEP]"):
            frame[name] = {"id": name, "ids": [vocab[name]], "tokens": [name]}
        content = {
            "version": "1.0",
            "added_tokens": added_tokens,
            "normalizer": {
                "type": "BertNormalizer",
                "strip_accents": self.strip_accents,
                "clean_text": True,
                "handle_chinese_chars": True,
                "lowercase": self.do_lower_case,
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [cls, first, first_sep],
                "pair": [cls, first, first_sep, second, second_sep],
                "special_tokens": frame,
            },
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {
                "type": "WordPiece",
                "unk_token": "[UNK]",
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": MAX_INPUT_CHARS_PER_WORD,
                "vocab": dict(vocab),
            },
        }
        return json.dumps(content, ensure_ascii=False)


def has_capital_pieces(vocabulary: Iterable[str]) -> bool:
    """Returns whether a vocabulary has capital letters, as that of a cased model.

    Args:
        vocabulary: the WordPieces.
    """
    pieces = [piece for piece in vocabulary if not piece.startswith(("[", "<"))]
    num_with_capitals = sum(piece != piece.lower() for piece in pieces)
    return num_with_capitals > _CASED_SHARE * len(pieces)


def has_case(vocabulary: Iterable[str]) -> bool:
    """Returns whether at least half of a vocabulary's pieces have letters with a case.

    Chinese and Hindi, for instance, have none.

    Args:
        vocabulary: the WordPieces.
    """
    pieces = [piece for piece in vocabulary if not piece.startswith(("[", "<"))]
    num_with_case = sum(piece.upper() != piece.lower() for piece in pieces)
    return 2 * num_with_case >= len(pieces)


def warn_about_casing(
    vocabulary: Iterable[str], do_lower_case: bool | None, vocab_file: str
) -> None:
    """Warns if the casing of the text does not fit the capitals of a vocabulary.

    Args:
        vocabulary: the WordPieces.
        do_lower_case: whether text is lower-cased; None, for unknown, causes no warning.
        vocab_file: the path of the vocabulary, for the warning.
    """
    if do_lower_case is None or do_lower_case != has_capital_pieces(vocabulary):
        return
    if do_lower_case:
        fault = "has capitals, but the text is lower-cased"
    elif has_case(vocabulary):
        fault = "has no capitals, but the text keeps its own"
    else:
        return
    errors.warn("%s: %s: is --do_lower_case=%s right?", vocab_file, fault, do_lower_case)


def unknown_casing(path: str) -> InputError:
    """Returns the error of a tokenizer_config.json that leaves the casing open.

    Args:
        path: the path of the file.
    """
    return InputError(
        f"{path}: leaves open whether text is lower-cased; write true or false as do_lower_case "
        "there, or give the flag"
    )


def build_pair(
    first: list[T], second: list[T], max_seq_length: int, cls: T, sep: T
) -> tuple[list[T], int]:
    """Builds the input of a model: `cls first sep second sep`.

    Args:
        first: the tokens or ids of the first text. The function may shorten the list.
        second: those of the second text, of which the same holds. If there are none, the input has
            one `sep`, as in the original.
        max_seq_length: the number of tokens to which the input is truncated.
        cls: the token or id of [CLS].
        sep: the token or id of [SEP].

    Returns:
        The input, and the number of its tokens in segment 0.
    """
    if second:
        truncate_seq_pair(first, second, max_seq_length - 3)
    else:
        first = first[: max_seq_length - 2]
    tokens = [cls, *first, sep, *second]
    if second:
        tokens.append(sep)
    return tokens, len(first) + 2


def truncate_seq_pair(tokens_a: list, tokens_b: list, max_length: int) -> None:
    """Shortens two token lists in place. The longer one, or b on a tie, loses its last token first.

    The pairs of a pre-training lose tokens at random ends instead (data/pretraining/exact.py).

    Args:
        tokens_a: the tokens of the first text.
        tokens_b: the tokens of the second text.
        max_length: the number of tokens that remain in both together.
    """
    while len(tokens_a) + len(tokens_b) > max_length:
        longer = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
        longer.pop()
