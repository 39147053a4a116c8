"""Reads the tokens that the files of Hugging Face add to a vocabulary, and the markers among them.

In: the folder of a model. Out: tables of tokens and ids, unchecked. tokenizer_files.py refuses the
tokens that FullTokenizer would split.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

from official_bert.io import files, reading
from official_bert.io.errors import InputError
from official_bert.io.reading import has_type

TOKENIZER_CONFIG_NAME = "tokenizer_config.json"
# The file of the library tokenizers, with the vocabulary and the rules.
TOKENIZER_NAME = "tokenizer.json"
_ADDED_TOKENS_NAME = "added_tokens.json"
SPECIAL_TOKENS_NAME = "special_tokens_map.json"
# The settings of a model of sentence-transformers or PyLate. The classes of late interaction have
# markers there, which they put before texts. PyLate adds them behind the vocabulary.
SENTENCE_CONFIG_NAME = "config_sentence_transformers.json"
_MARKER_CLASSES = ("ColBERT", "MultiVectorEncoder")
_MARKER_KEYS = ("query_prefix", "document_prefix")
# BERT's rules split such words, so that no text has them as a token.
_MARKER = re.compile(r"\[\w+\]|\w+:")
MOST_PIECES = 1 << 24  # a larger id in a file would fill the memory with lines


def read_markers(folder: str) -> dict[str, int]:
    """Reads the added tokens that a model of late interaction puts before its texts.

    Args:
        folder: the folder of a model.

    Returns:
        The ids of the tokens, by their texts without blanks around them: "[Q]" for the "[Q] " of
        PyLate. The result is empty for other models, and for markers without an id.

    Raises:
        InputError: a file is corrupt, or two files have different ids.
    """
    words = _read_marker_words(folder)
    if not words:
        return {}
    config = read_object(os.path.join(folder, TOKENIZER_CONFIG_NAME)) or {}
    library = read_library_file(folder) or {}
    markers: dict[str, int] = {}
    for path, table in list_added_tokens(folder, config, library):
        for token, number in table.items():
            word = token.strip()
            is_id = has_type(number, int) and 0 <= number < MOST_PIECES
            if word in words and is_id and markers.setdefault(word, number) != number:
                raise InputError(
                    f"{path}: the id of the added token {token!r} is {number} there, and "
                    f"{markers[word]} in another file; delete the file that is not of this model"
                )
    return markers


def _read_marker_words(folder: str) -> set[str]:
    """Returns the markers that the settings of a model name, without blanks around them."""
    config = read_object(os.path.join(folder, SENTENCE_CONFIG_NAME)) or {}
    if config.get("model_type") not in _MARKER_CLASSES:
        return set()
    values = [config.get(key) for key in _MARKER_KEYS]
    prompts = config.get("prompts")
    if isinstance(prompts, dict):
        values += prompts.values()
    words = {value.strip() for value in values if isinstance(value, str)}
    return set(filter(_MARKER.fullmatch, words))


def read_object(path: str) -> dict[str, Any] | None:
    """Reads the JSON object in a file.

    Args:
        path: the path of the file.

    Returns:
        The object; None if there is no file.

    Raises:
        InputError: the file has other content.
    """
    if not files.exists(path):
        return None
    content = reading.read_json(files.check_model_file(path))
    return reading.check_object(content, path)


def read_library_file(folder: str) -> dict[str, Any] | None:
    """Reads a tokenizer.json.

    Args:
        folder: the folder of a model.

    Returns:
        The content; None if there is no file, or one of another program.

    Raises:
        InputError: the file is not JSON.
    """
    path = os.path.join(folder, TOKENIZER_NAME)
    if not files.exists(path):
        return None
    content = reading.read_json(files.check_model_file(path))
    if not isinstance(content, dict):
        return None
    has_model = isinstance(content.get("model"), dict)
    return content if has_model else None


def list_added_tokens(
    folder: str,
    config: Mapping[str, Any],
    library: Mapping[str, Any],
) -> list[tuple[str, Mapping[str, Any]]]:
    """Lists the added tokens in the files of a folder.

    Args:
        folder: the folder of a model.
        config: the content of tokenizer_config.json.
        library: the content of tokenizer.json.

    Returns:
        Pairs of the path of a file and a table: token -> id, or None for a token without an id. A
        file may have several tables.

    Raises:
        InputError: another file is corrupt.
    """
    special_path = os.path.join(folder, SPECIAL_TOKENS_NAME)
    special = read_object(special_path) or {}
    added_path = os.path.join(folder, _ADDED_TOKENS_NAME)
    added_tokens = read_object(added_path) or {}
    decoder_tokens = _read_decoder(config.get("added_tokens_decoder"))
    config_path = os.path.join(folder, TOKENIZER_CONFIG_NAME)
    library_path = os.path.join(folder, TOKENIZER_NAME)
    return [
        (library_path, list_tokens(library.get("added_tokens"))),
        (config_path, list_tokens(decoder_tokens)),
        *_list_further_tokens(config_path, config),
        *_list_further_tokens(special_path, special),
        (added_path, added_tokens),
    ]


def _list_further_tokens(
    path: str,
    settings: Mapping[str, Any],
) -> list[tuple[str, dict[str, int | None]]]:
    """Returns the tables of the further special tokens in a file, each with the file's path."""
    keys = ("additional_special_tokens", "extra_special_tokens")
    return [(path, list_tokens(settings.get(key))) for key in keys]


def _read_decoder(decoder: Any) -> list[dict[str, Any]]:
    """Returns the tokens of an added_tokens_decoder: id, as a text -> token."""
    if not isinstance(decoder, dict):
        return []
    tokens = []
    for number, token in decoder.items():
        token_id = int(number) if number.isdecimal() else None
        tokens.append({"id": token_id, "content": get_token_text(token)})
    return tokens


def list_tokens(tokens: Any) -> dict[str, int | None]:
    """Lists the tokens in a JSON list or object.

    Args:
        tokens: the JSON value.

    Returns:
        Token -> id; None for a token without an id.
    """
    values = []
    if isinstance(tokens, dict):
        values = list(tokens.values())
    elif isinstance(tokens, list):
        values = tokens
    ids: dict[str, int | None] = {}
    for value in values:
        text = get_token_text(value)
        if not isinstance(text, str):
            continue
        ids[text] = None
        if isinstance(value, dict) and has_type(value.get("id"), int):
            ids[text] = value["id"]
    return ids


def get_token_text(token: Any) -> Any:
    """Returns the text of a token.

    Args:
        token: the text, or an object with the text and its rules.
    """
    return token.get("content") if isinstance(token, dict) else token
