"""Reads the files of a tokenizer that another program wrote, and refuses other rules than BERT's.

In: the folder of a model. Out: the settings in its files. The tables at the top list the keys that
change the tokens. A key of `_ACCEPTED_VALUES` is refused with any other value.
"""

import os
import re
import unicodedata
from collections.abc import Container, Iterable, Mapping
from typing import Any

from official_bert.added_tokens import (
    SPECIAL_TOKENS_NAME,
    TOKENIZER_CONFIG_NAME,
    TOKENIZER_NAME,
    get_token_text,
    list_added_tokens,
    list_tokens,
    read_library_file,
    read_markers,
    read_object,
)
from official_bert.io import errors, files, reading
from official_bert.io.errors import InputError
from official_bert.io.reading import has_type

_VOCAB_NAME = "vocab.txt"
# Classes with the rules of BERT. A generic class has the rules of tokenizer.json, which are
# checked.
_CLASSES = (
    "BertTokenizer",
    "BertTokenizerFast",
    "DistilBertTokenizer",
    "DistilBertTokenizerFast",
    "ElectraTokenizer",
    "ElectraTokenizerFast",
)
_GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
SPECIAL_TOKENS = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
# Key of tokenizer_config.json -> its accepted values, besides null. The padding token may have any
# name, because padding is masked.
_ACCEPTED_VALUES = {
    "do_basic_tokenize": (True,),
    "do_word_tokenize": (True,),
    "do_subword_tokenize": (True,),
    "word_tokenizer_type": ("basic",),
    "subword_tokenizer_type": ("wordpiece",),
    "truncation_side": ("right",),
}
# Part of tokenizer.json -> the type with the tokens of FullTokenizer, and the key of the parts in a
# sequence.
_PART_TYPES = {
    "normalizer": ("BertNormalizer", "normalizers"),
    "pre_tokenizer": ("BertPreTokenizer", "pretokenizers"),
    "post_processor": ("TemplateProcessing", "processors"),
}
_MODEL_VALUES = {
    "unk_token": "[UNK]",
    "continuing_subword_prefix": "##",
}
_RESERVED_WORD = re.compile(r"\[unused\d+\]")
_USUAL_WORD_LENGTH = 100  # the limit of transformers; hardly any word is longer
_LARGEST_LENGTH = 1 << 31  # a larger length of Hugging Face means "no limit"
_KEEP_VOCABULARY = (
    f"delete the file if {_VOCAB_NAME} and {TOKENIZER_CONFIG_NAME} say how the model reads text"
)


def read_settings(folder: str) -> dict[str, Any] | None:
    """Reads `do_lower_case`, `strip_accents` and `model_max_length` of a folder.

    Args:
        folder: the folder of a model.

    Returns:
        The settings of tokenizer_config.json and tokenizer.json, over the defaults of Hugging Face;
        None if the folder has neither file.

    Raises:
        InputError: a file is corrupt, the files contradict one another, or the tokenizer is of
            another kind.
    """
    config_path = os.path.join(folder, TOKENIZER_CONFIG_NAME)
    config = read_object(config_path)
    library = read_library_file(folder)
    classes = _CLASSES if library is None else _CLASSES + _GENERIC_CLASSES
    if config is not None:
        _check_config(config, config_path, classes)
    _check_model_config(
        os.path.join(folder, "config.json"),
        config or {},
        classes,
    )
    if library is not None:
        _check_parts(library, os.path.join(folder, TOKENIZER_NAME))
    markers = read_markers(folder)
    vocab = markers | _read_vocabulary(folder, library)
    settings = _merge_settings(config, library, folder)
    is_lowered = settings is None or settings["do_lower_case"] is not False
    _check_added_tokens(
        folder,
        config or {},
        library or {},
        vocab,
        markers,
        is_lowered,
    )
    return settings


def _merge_settings(
    config: dict | None,
    library: dict | None,
    folder: str,
) -> dict[str, Any] | None:
    """Returns the settings of both files; None if neither file has settings."""
    normalizer = _find_part(library or {}, "normalizer") or {}
    if config is None and not normalizer:
        return None
    config = config or {}
    settings = {
        "do_lower_case": config.get("do_lower_case", True),
        "strip_accents": config.get("strip_accents"),
    }
    library_settings = {
        "do_lower_case": normalizer.get("lowercase"),
        "strip_accents": normalizer.get("strip_accents"),
    }
    library_path = os.path.join(folder, TOKENIZER_NAME)
    for name, value in library_settings.items():
        if not _is_truth_value(value):
            raise InputError(f"{library_path}: its normalizer has {name}={value!r}; correct it")
        if value is None:
            continue
        if config.get(name) not in (None, value):
            raise InputError(
                f"{library_path}: its normalizer says {name}={value}, and "
                f"{TOKENIZER_CONFIG_NAME} says {config[name]}; correct the wrong file"
            )
        # A casing of null in tokenizer_config.json asks the user for the flag.
        is_open = name == "do_lower_case" and name in config
        if not is_open:
            settings[name] = value
    settings["model_max_length"] = None
    length = config.get("model_max_length", 0)
    if has_type(length, int) and 0 < length < _LARGEST_LENGTH:
        settings["model_max_length"] = length
    return settings


def _is_truth_value(value: Any) -> bool:
    """Returns whether a JSON value is true, false or null, and not 1 or 0."""
    return value is True or value is False or value is None


def _check_config(
    config: dict[str, Any],
    path: str,
    classes: tuple[str, ...],
):
    for name in ("do_lower_case", "strip_accents"):
        value = config.get(name)
        if not _is_truth_value(value):
            raise InputError(f"{path}: {name} is {value!r}; write true or false")
    _check_class(config, path, classes)
    for name, accepted_values in _ACCEPTED_VALUES.items():
        value = config.get(name)
        if value is not None and value not in accepted_values:
            raise InputError(
                f"{path}: {name} is {value!r}, and only "
                f"{accepted_values[0]!r} can be used; take "
                "another model"
            )
    _check_special_tokens(config, path)
    if config.get("tokenize_chinese_chars") is False:
        errors.warn(
            "%s: tokenize_chinese_chars is false, but ideographs are always single words",
            path,
        )
    if never_split := config.get("never_split"):
        errors.warn(
            "%s: never_split has %s, but each text is split at punctuation",
            path,
            _format_tokens(never_split),
        )


def _check_class(
    config: Mapping[str, Any],
    path: str,
    classes: tuple[str, ...],
):
    name = config.get("tokenizer_class") or _CLASSES[0]
    if name not in classes:
        raise InputError(
            f"{path}: is of a {name}; only models with WordPieces (BertTokenizer) can be used"
        )


def _check_model_config(
    path: str,
    tokenizer_config: Mapping[str, Any],
    classes: tuple[str, ...],
):
    """Checks the class in Hugging Face's config.json, if tokenizer_config.json leaves it open."""
    if tokenizer_config.get("tokenizer_class") or not files.exists(path):
        return
    content = reading.read_json(files.check_model_file(path))
    if isinstance(content, dict) and "model_type" in content:
        _check_class(content, path, classes)


def _check_special_tokens(settings: Mapping[str, Any], path: str):
    for name, token in SPECIAL_TOKENS.items():
        value = get_token_text(settings.get(name))
        if value not in (None, token) and name != "pad_token":
            raise InputError(
                f"{path}: {name} is {value!r}, and only {token!r} can be used; take another model"
            )


def _check_parts(library: dict[str, Any], path: str):
    """Checks the rules of a tokenizer.json. A part that the file lacks is left open."""
    model = library["model"]
    if model.get("type") != "WordPiece":
        raise InputError(
            f"{path}: holds no vocabulary of WordPieces; only models with WordPieces can be used"
        )
    for name, accepted_value in _MODEL_VALUES.items():
        value = model.get(name, accepted_value)
        if value != accepted_value:
            raise InputError(
                f"{path}: {name} is {value!r}, and only {accepted_value!r} can be used; take "
                "another model"
            )
    for name in _PART_TYPES:
        if name in library:
            _check_part(library, name, path)
    longest = model.get("max_input_chars_per_word")
    if has_type(longest, int) and longest < _USUAL_WORD_LENGTH:
        errors.warn(
            "%s: max_input_chars_per_word is %d, but longer words are split into pieces here, too",
            path,
            longest,
        )
    normalizer = _find_part(library, "normalizer") or {}
    if normalizer.get("clean_text") is False:
        raise InputError(
            f"{path}: its normalizer keeps control characters (clean_text); {_KEEP_VOCABULARY}"
        )
    if normalizer.get("handle_chinese_chars") is False:
        errors.warn(
            "%s: handle_chinese_chars is false, but ideographs are always single words",
            path,
        )


def _check_part(library: dict[str, Any], name: str, path: str):
    """Refuses a part of a tokenizer.json that computes other tokens than FullTokenizer."""
    part = _find_part(library, name) or {}
    part_type = part.get("type", "none")
    accepted_type, _ = _PART_TYPES[name]
    if name == "post_processor":
        vocab = library["model"].get("vocab")
        is_accepted = _is_frame(part) and _has_vocabulary_ids(part, vocab)
    else:
        is_accepted = part_type == accepted_type
    if not is_accepted:
        raise InputError(
            f"{path}: its {name} ({part_type}) gives other tokens than the "
            f"{accepted_type} of BERT, and only that can be used; {_KEEP_VOCABULARY}"
        )


def _find_part(
    library: Mapping[str, Any],
    name: str,
) -> dict[str, Any] | None:
    """Returns a part of a tokenizer.json; a sequence of one part is this part."""
    part = library.get(name)
    _, sequence_key = _PART_TYPES[name]
    if isinstance(part, dict) and part.get("type") == "Sequence":
        parts = part.get(sequence_key)
        if isinstance(parts, list) and len(parts) == 1:
            part = parts[0]
    return part if isinstance(part, dict) else None


def _is_frame(part: Mapping[str, Any]) -> bool:
    """Returns whether a post-processor puts [CLS] A [SEP] in segment 0, and B [SEP] in 1."""
    if part.get("type") == "BertProcessing":
        tokens = [_first_item(part.get(key)) for key in ("cls", "sep")]
        return tokens == ["[CLS]", "[SEP]"]
    if part.get("type") != "TemplateProcessing":
        return False
    single = _read_template(part.get("single"))
    pair = _read_template(part.get("pair"))
    expected_single = [("[CLS]", 0), ("A", 0), ("[SEP]", 0)]
    expected_pair = [*expected_single, ("B", 1), ("[SEP]", 1)]
    return single == expected_single and pair == expected_pair


def _has_vocabulary_ids(part: Mapping[str, Any], vocab: Any) -> bool:
    """Returns whether a post-processor has the vocabulary's ids of [CLS] and [SEP]."""
    vocabulary_ids = vocab if isinstance(vocab, dict) else {}
    special_tokens = part.get("special_tokens")
    if not isinstance(special_tokens, dict):
        special_tokens = {}
    for name, key in (("[CLS]", "cls"), ("[SEP]", "sep")):
        ids = None
        token = special_tokens.get(name)
        if isinstance(token, dict):
            ids = token.get("ids")
        if part.get("type") == "BertProcessing":
            ids = part[key][1:]
        if ids not in (None, [], [vocabulary_ids.get(name)]):
            return False
    return True


def _read_template(items: Any) -> list[tuple[Any, Any]]:
    """Returns the names and the segments of a template's items."""
    if not isinstance(items, list):
        return []
    pairs = []
    for item in items:
        settings = None
        if isinstance(item, dict):
            settings = _first_item(list(item.values()))
        if not isinstance(settings, dict):
            settings = {}
        pair = (settings.get("id"), settings.get("type_id"))
        pairs.append(pair)
    return pairs


def _first_item(values: Any) -> Any:
    """Returns the first item of a list; None if there is none, or for another value."""
    return values[0] if isinstance(values, list) and values else None


def _read_vocabulary(folder: str, library: dict[str, Any] | None) -> dict[str, int]:
    """Returns the ids of the pieces of vocab.txt, or else of tokenizer.json.

    Raises:
        InputError: the files contradict one another.
    """
    path = os.path.join(folder, _VOCAB_NAME)
    library_vocab = _read_library_vocabulary(library) if library else {}
    if not files.exists(path):
        return library_vocab
    lines = reading.read_lines(files.check_model_file(path))
    vocab = _strip_pieces((line, number) for number, line in enumerate(lines))
    if library is None:
        return vocab
    # The added tokens of a tokenizer.json may be lines of vocab.txt.
    library_ids: dict[str, int | None] = {**library_vocab}
    added_tokens = list_tokens(library.get("added_tokens"))
    for token, number in added_tokens.items():
        if token.strip() in vocab:
            library_ids.setdefault(token.strip(), number)
    library_path = os.path.join(folder, TOKENIZER_NAME)
    all_pieces = vocab.keys() | library_ids.keys()
    for piece in sorted(all_pieces, key=lambda piece: vocab.get(piece, -1)):
        vocab_id = vocab.get(piece, "none")
        library_id = library_ids.get(piece, "none")
        if vocab_id != library_id:
            raise InputError(
                f"{library_path}: the id of {piece!r} is {library_id} there, and "
                f"{vocab_id} in {_VOCAB_NAME}; delete the file that is not of this model"
            )
    return vocab


def _read_library_vocabulary(library: dict[str, Any]) -> dict[str, int]:
    """Returns the ids of the pieces of a tokenizer.json, in the order of the ids."""
    vocab = library["model"].get("vocab")
    if not isinstance(vocab, dict):
        return {}
    items = [item for item in vocab.items() if has_type(item[1], int)]
    items.sort(key=lambda item: item[1])
    return _strip_pieces(items)


def _strip_pieces(
    pieces: Iterable[tuple[str, int]],
) -> dict[str, int]:
    """Returns the ids of pieces as a FullTokenizer has them: stripped, and without blank pieces."""
    return {piece.strip(): number for piece, number in pieces if piece.strip()}


def _check_added_tokens(
    folder: str,
    config: Mapping[str, Any],
    library: Mapping[str, Any],
    vocab: Mapping[str, int],
    markers: Container[str],
    is_lowered: bool,
):
    """Refuses tokens that transformers takes out of a text before it splits the text into words."""
    special_path = os.path.join(folder, SPECIAL_TOKENS_NAME)
    _check_special_tokens(read_object(special_path) or {}, special_path)
    for path, table in list_added_tokens(folder, config, library):
        for token, number in table.items():
            word = token.strip()
            if word in markers and number in (None, vocab[word]):
                continue
            if not _is_accepted_token(token, number, vocab, is_lowered):
                raise InputError(
                    f"{path}: the added token {token!r} is one token for transformers and would be "
                    "split or get another id here; remove it from the file if your texts do not "
                    "have it, or else train with a word in its place (official-bert grow_vocab "
                    "adds words)"
                )


def _is_accepted_token(
    token: str,
    number: int | None,
    vocab: Mapping[str, int],
    is_lowered: bool,
) -> bool:
    """Returns whether FullTokenizer also makes one token, with this id, of an added token.

    Texts do not have the words that the vocabulary reserves.
    """
    vocabulary_id = vocab.get(token)
    if number is not None and vocabulary_id not in (None, number):
        return False
    if token in SPECIAL_TOKENS.values():
        return True
    if vocabulary_id is not None and _RESERVED_WORD.fullmatch(token):
        return True
    return vocabulary_id is not None and _is_word(token, is_lowered)


def _is_word(token: str, is_lowered: bool) -> bool:
    """Returns whether the rules of BERT leave a piece of the vocabulary as it is."""
    is_decomposed = unicodedata.normalize("NFD", token) == token
    is_plain = token.isalnum() and is_decomposed and max(token) < "\u3000"
    return is_plain and (not is_lowered or token == token.lower())


def _format_tokens(tokens: Any) -> str:
    listed_tokens = tokens if isinstance(tokens, list) else [tokens]
    return ", ".join(map(str, listed_tokens))
