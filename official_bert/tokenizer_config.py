"""How text becomes a model's input: tokenizer_config.json, in Hugging Face's form, and how two
texts are build_pair.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Self

from official_bert import tokenizer_files
from official_bert.io import errors
from official_bert.io.errors import InputError
from official_bert.tokenizer_files import SPECIAL_TOKENS

MAX_INPUT_CHARS_PER_WORD = 200
_CASED_SHARE = 0.001  # an uncased vocabulary has no capitals but in control tokens such as <S>


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
    """The settings of a model's tokenizer.

    `do_lower_case` of None, null in the file, means that it is not known, and is asked for.
    `strip_accents` of None means the value of do_lower_case; `model_max_length`, the number of
    positions of the model, is None for no limit.
    """

    do_lower_case: bool | None = True
    strip_accents: bool | None = None
    model_max_length: int | None = None

    @property
    def strips_accents(self) -> bool | None:
        """Whether accents are removed, by whichever setting."""
        return self.do_lower_case if self.strip_accents is None else self.strip_accents

    @classmethod
    def read(cls, folder: str) -> Self | None:
        """Reads the tokenizer_config.json and tokenizer.json of a folder; returns None if the
        folder has neither.
        """
        settings = tokenizer_files.read_settings(folder)
        return None if settings is None else cls(**settings)

    def to_json_string(self) -> str:
        """Returns the content of a tokenizer_config.json, with which transformers' AutoTokenizer
        gives our tokens.
        """
        settings = dataclasses.asdict(self) | SPECIAL_TOKENS
        return json.dumps(
            settings | {"tokenize_chinese_chars": True, "tokenizer_class": "BertTokenizer"},
            indent=2,
        )

    def to_tokenizer_json(self, vocab: Mapping[str, int]) -> str | None:
        """Returns the content of a tokenizer.json; None if the casing or the id of a token of every
        input is unknown.

        It gives our ids but for habits of its library: the name of a special token in a text is
        that token, a capital sigma at the end of a word becomes the sigma of its middle, and tables
        of an older Unicode tell what is an accent, punctuation or nothing.
        """
        if self.do_lower_case is None or not {"[UNK]", "[CLS]", "[SEP]"} <= vocab.keys():
            return None
        rule = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {
            "special": True
        }
        special = {vocab[token]: token for token in SPECIAL_TOKENS.values() if token in vocab}
        pair = [
            {
                "Sequence" if name in "AB" else "SpecialToken": {
                    "id": name,
                    "type_id": int(place > 2),
                }
            }
            for place, name in enumerate(("[CLS]", "A", "[SEP]", "B", "[SEP]"))
        ]
        frame = {
            name: {"id": name, "ids": [vocab[name]], "tokens": [name]}
            for name in ("[CLS]", "[SEP]")
        }
        normalizer = {
            "clean_text": True,
            "handle_chinese_chars": True,
            "lowercase": self.do_lower_case,
        }
        content = {
            "version": "1.0",
            "added_tokens": [
                {"id": number, "content": special[number], **rule} for number in sorted(special)
            ],
            "normalizer": {
                "type": "BertNormalizer",
                "strip_accents": self.strip_accents,
                **normalizer,
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {
                **{"type": "TemplateProcessing", "single": pair[:3]},
                **{"pair": pair, "special_tokens": frame},
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
    """Tells whether a vocabulary has capital letters, as one of text that was not lower-cased has."""
    pieces = [piece for piece in vocabulary if not piece.startswith(("[", "<"))]
    return sum(piece != piece.lower() for piece in pieces) > _CASED_SHARE * len(pieces)


def has_case(vocabulary: Iterable[str]) -> bool:
    """Tells whether half of a vocabulary's pieces or more could have capitals, as those of
    Chinese or Hindi cannot.
    """
    pieces = [piece for piece in vocabulary if not piece.startswith(("[", "<"))]
    return 2 * sum(piece.upper() != piece.lower() for piece in pieces) >= len(pieces)


def warn_about_casing(vocabulary: Iterable[str], do_lower_case: bool | None, vocab_file: str):
    """Warns if text is lower-cased although the vocabulary has capitals, or is not although it
    has none.
    """
    has_capitals = has_capital_pieces(vocabulary)
    if (
        do_lower_case is not None
        and do_lower_case == has_capitals
        and (do_lower_case or has_case(vocabulary))
    ):
        fault = "has no capitals, but the text keeps its own"
        if do_lower_case:
            fault = "has capitals, but the text is lower-cased"
        errors.warn("%s: %s: is --do_lower_case=%s right?", vocab_file, fault, do_lower_case)


def unknown_casing(path: str) -> InputError:
    """Returns the error of a use of a tokenizer_config.json that leaves the casing open."""
    return InputError(
        f"{path}: leaves open whether text is lower-cased; write true or false as do_lower_case "
        "there, or give the flag"
    )


def build_pair(first: list, second: list, max_seq_length: int, cls, sep) -> tuple[list, int]:
    """Returns `cls first sep second sep`, truncated, and the length of segment 0; it may shorten
    the lists.

    Where nothing is left of `second`, there is one `sep`, as in the original.
    """
    if second:
        truncate_seq_pair(first, second, max_seq_length - 3)
    else:
        first = first[: max_seq_length - 2]
    return [cls, *first, sep, *second, *([sep] if second else [])], len(first) + 2


def truncate_seq_pair(tokens_a: list[str], tokens_b: list[str], max_length: int):
    """Shortens two token lists in place to `max_length` in all; the longer one (b on a tie) loses
    its last token.

    The pairs of pre-training lose tokens at random ends instead (`exact.truncated`).
    """
    while len(tokens_a) + len(tokens_b) > max_length:
        (tokens_a if len(tokens_a) > len(tokens_b) else tokens_b).pop()
