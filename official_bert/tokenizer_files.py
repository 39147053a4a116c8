"""Reads the files of a tokenizer that another program wrote; what would give other tokens than
there is refused.

In: the folder of a model. Out: the settings that its files name. The tables at the top list the
    keys that change the
tokens: those of `_ACCEPTED_VALUES` are refused with any other value.
"""

import os
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from official_bert.io import errors, files, reading
from official_bert.io.errors import InputError
from official_bert.io.reading import is_of_kind

TOKENIZER_CONFIG_NAME = "tokenizer_config.json"
# Of the library tokenizers: the vocabulary and the rules in one file.
TOKENIZER_NAME = "tokenizer.json"
_VOCAB_NAME = "vocab.txt"
_ADDED_TOKENS_NAME, _SPECIAL_TOKENS_NAME = "added_tokens.json", "special_tokens_map.json"
# Their rules are BERT's. A generic class has those of tokenizer.json, which are checked.
_CLASSES = tuple(
    f"{name}Tokenizer{kind}" for name in ("Bert", "DistilBert", "Electra") for kind in ("", "Fast")
)
_GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
SPECIAL_TOKENS = {
    f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")
}
# Of tokenizer_config.json; null is the default of each. Padding is masked, so its token may have
# any name.
_ACCEPTED_VALUES = {
    "do_basic_tokenize": (True,),
    "do_word_tokenize": (True,),
    "do_subword_tokenize": (True,),
    "word_tokenizer_type": ("basic",),
    "subword_tokenizer_type": ("wordpiece",),
    "truncation_side": ("right",),
}
# The parts of tokenizer.json: the types that give the tokens of FullTokenizer.
_PART_TYPES = {
    "normalizer": ("BertNormalizer", "normalizers"),
    "pre_tokenizer": ("BertPreTokenizer", "pretokenizers"),
    "post_processor": ("TemplateProcessing", "processors"),
}
_MODEL_VALUES = {"unk_token": "[UNK]", "continuing_subword_prefix": "##"}
_USUAL_WORD_LENGTH = 100  # of transformers; hardly a word is longer
_LARGEST_LENGTH = 1 << 31  # above it Hugging Face means "no limit"
_KEEP_VOCABULARY = (
    f"delete the file if {_VOCAB_NAME} and {TOKENIZER_CONFIG_NAME} say how the model reads text"
)


def read_settings(folder: str) -> dict[str, Any] | None:
    """Reads `do_lower_case`, `strip_accents` and `model_max_length` of a folder.

    Returns:
        The settings that tokenizer_config.json and tokenizer.json name, over the defaults of
        Hugging Face; None if the folder has neither file.

    Raises:
        InputError: a file is corrupt, the files contradict one another, or the tokenizer is of
            another kind.
    """
    config_path = os.path.join(folder, TOKENIZER_CONFIG_NAME)
    config, library = _object(config_path), _library_file(folder)
    classes = _CLASSES if library is None else _CLASSES + _GENERIC_CLASSES
    if config is not None:
        _check_config(config, config_path, classes)
    _check_model_config(os.path.join(folder, "config.json"), config or {}, classes)
    if library is not None:
        _check_parts(library, os.path.join(folder, TOKENIZER_NAME))
    vocab = _checked_vocabulary(folder, library)
    settings = _settings(config, library, folder)
    is_lowered = settings is None or settings["do_lower_case"] is not False
    _check_added_tokens(folder, config or {}, library or {}, vocab, is_lowered)
    return settings


def _object(path: str) -> dict[str, Any] | None:
    return (
        reading.as_object(reading.read_json(files.check_model_file(path)), path)
        if files.exists(path)
        else None
    )


def _library_file(folder: str) -> dict[str, Any] | None:
    """Returns the content of a tokenizer.json; None if there is none, or it is a file of another
    program.
    """
    path = os.path.join(folder, TOKENIZER_NAME)
    if not files.exists(path):
        return None
    content = reading.read_json(files.check_model_file(path))
    return content if isinstance(content, dict) and isinstance(content.get("model"), dict) else None


def _settings(config: dict | None, library: dict | None, folder: str) -> dict[str, Any] | None:
    normalizer = _part(library or {}, "normalizer") or {}
    if config is None and not normalizer:
        return None
    config = config or {}
    settings = {
        "do_lower_case": config.get("do_lower_case", True),
        "strip_accents": config.get("strip_accents"),
    }
    theirs = {
        "do_lower_case": normalizer.get("lowercase"),
        "strip_accents": normalizer.get("strip_accents"),
    }
    for name, value in theirs.items():
        if not any(value is truth_value for truth_value in (True, False, None)):
            raise InputError(
                f"{os.path.join(folder, TOKENIZER_NAME)}: its normalizer has {name}={value!r}; "
                "correct it"
            )
        if value is not None and config.get(name) not in (None, value):
            raise InputError(
                f"{os.path.join(folder, TOKENIZER_NAME)}: its normalizer says {name}={value}, and "
                f"{TOKENIZER_CONFIG_NAME} says {config[name]}; correct the wrong file"
            )
        is_open = name == "do_lower_case" and name in config  # null there asks the user
        if value is not None and not is_open:
            settings[name] = value
    length = config.get("model_max_length")
    is_length = is_of_kind(length, int) and 0 < length < _LARGEST_LENGTH
    return settings | {"model_max_length": length if is_length else None}


def _check_config(config: dict[str, Any], path: str, classes: tuple[str, ...]):
    for name in ("do_lower_case", "strip_accents"):
        if not any(config.get(name) is value for value in (True, False, None)):
            raise InputError(f"{path}: {name} is {config[name]!r}; write true or false")
    _check_class(config, path, classes)
    for name, accepted in _ACCEPTED_VALUES.items():
        if (value := config.get(name)) is not None and value not in accepted:
            raise InputError(
                f"{path}: {name} is {value!r}, and only {accepted[0]!r} can be used; take another "
                "model"
            )
    _check_special_tokens(config, path)
    if config.get("tokenize_chinese_chars") is False:
        errors.warn(
            "%s: tokenize_chinese_chars is false, but ideographs are always single words", path
        )
    if never_split := config.get("never_split"):
        errors.warn(
            "%s: never_split has %s, but each text is split at punctuation",
            path,
            _listed(never_split),
        )


def _check_class(config: dict[str, Any], path: str, classes: tuple[str, ...]):
    name = config.get("tokenizer_class") or _CLASSES[0]
    if name not in classes:
        raise InputError(
            f"{path}: is of a {name}; only models with WordPieces (BertTokenizer) can be used"
        )


def _check_model_config(path: str, tokenizer_config: Mapping[str, Any], classes: tuple[str, ...]):
    """Checks the class that a config.json of Hugging Face names where tokenizer_config.json
    leaves it open.
    """
    if tokenizer_config.get("tokenizer_class") or not files.exists(path):
        return
    content = reading.read_json(files.check_model_file(path))
    if isinstance(content, dict) and "model_type" in content:
        _check_class(content, path, classes)


def _check_special_tokens(settings: Mapping[str, Any], path: str):
    for name, token in SPECIAL_TOKENS.items():
        value = _content(settings.get(name))
        if value not in (None, token) and name != "pad_token":
            raise InputError(
                f"{path}: {name} is {value!r}, and only {token!r} can be used; take another model"
            )


def _check_parts(library: dict[str, Any], path: str):
    """Checks the rules of a tokenizer.json; a part that the file does not have at all is left open."""
    model = library["model"]
    if model.get("type") != "WordPiece":
        raise InputError(
            f"{path}: holds no vocabulary of WordPieces; only models with WordPieces can be used"
        )
    for name, only in _MODEL_VALUES.items():
        if model.get(name, only) != only:
            raise InputError(
                f"{path}: {name} is {model[name]!r}, and only {only!r} can be used; take another "
                "model"
            )
    for name, (only, _) in _PART_TYPES.items():
        if name not in library:
            continue
        part = _part(library, name) or {}
        is_frame = (
            name == "post_processor"
            and _is_frame(part)
            and _has_vocabulary_ids(part, model.get("vocab"))
        )
        if not is_frame and (part.get("type") != only or name == "post_processor"):
            raise InputError(
                f"{path}: its {name} ({part.get('type', 'none')}) gives other tokens than the "
                f"{only} of BERT, and only that can be used; {_KEEP_VOCABULARY}"
            )
    longest = model.get("max_input_chars_per_word")
    if is_of_kind(longest, int) and longest < _USUAL_WORD_LENGTH:
        errors.warn(
            "%s: max_input_chars_per_word is %d, but longer words are split into pieces here, too",
            path,
            longest,
        )
    normalizer = _part(library, "normalizer") or {}
    if normalizer.get("clean_text") is False:
        raise InputError(
            f"{path}: its normalizer keeps control characters (clean_text); {_KEEP_VOCABULARY}"
        )
    if normalizer.get("handle_chinese_chars") is False:
        errors.warn(
            "%s: handle_chinese_chars is false, but ideographs are always single words", path
        )


def _part(library: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Returns a part of a tokenizer.json; a sequence of one part is this part."""
    part, listed = library.get(name), _PART_TYPES[name][1]
    if isinstance(part, dict) and part.get("type") == "Sequence":
        parts = part.get(listed)
        part = parts[0] if isinstance(parts, list) and len(parts) == 1 else part
    return part if isinstance(part, dict) else None


def _is_frame(part: Mapping[str, Any]) -> bool:
    """Returns whether a post-processor makes [CLS] A [SEP] and [CLS] A [SEP] B [SEP] with
    segments 0 and 1.
    """
    if part.get("type") == "BertProcessing":
        return [_first(part.get("cls")), _first(part.get("sep"))] == ["[CLS]", "[SEP]"]
    single = [("[CLS]", 0), ("A", 0), ("[SEP]", 0)]
    is_template = part.get("type") == "TemplateProcessing"
    both = (_template(part.get("single")), _template(part.get("pair")))
    return is_template and both == (single, [*single, ("B", 1), ("[SEP]", 1)])


def _has_vocabulary_ids(part: Mapping[str, Any], vocab: Any) -> bool:
    """Returns whether the ids that a post-processor names for [CLS] and [SEP] are those of the
    vocabulary.
    """
    vocabulary_ids = vocab if isinstance(vocab, dict) else {}
    listed = part.get("special_tokens")
    listed = listed if isinstance(listed, dict) else {}
    for name, key in (("[CLS]", "cls"), ("[SEP]", "sep")):
        token = listed.get(name)
        ids = token.get("ids") if isinstance(token, dict) else None
        if part.get("type") == "BertProcessing":
            ids = part[key][1:]
        if ids not in (None, [], [vocabulary_ids.get(name)]):
            return False
    return True


def _template(items: Any) -> list[tuple[Any, Any]]:
    """Returns the names and the segments of a template's items."""
    pairs = []
    for item in items if isinstance(items, list) else []:
        settings = next(iter(item.values()), None) if isinstance(item, dict) else None
        pairs.append(
            (settings.get("id"), settings.get("type_id"))
            if isinstance(settings, dict)
            else (None, None)
        )
    return pairs


def _first(values: Any) -> Any:
    return values[0] if isinstance(values, list) and values else None


def _checked_vocabulary(folder: str, library: dict[str, Any] | None) -> dict[str, int]:
    """Returns the ids of the pieces of vocab.txt, or else tokenizer.json, which must not
    contradict one another.
    """
    path = os.path.join(folder, _VOCAB_NAME)
    theirs = {}
    if library is not None and isinstance(library["model"].get("vocab"), dict):
        vocab = {
            piece: number
            for piece, number in library["model"]["vocab"].items()
            if is_of_kind(number, int)
        }
        theirs = _stripped(sorted(vocab.items(), key=lambda item: item[1]))
    if not files.exists(path):
        return theirs
    lines = reading.read_lines(files.check_model_file(path))
    vocab = _stripped((line, number) for number, line in enumerate(lines))
    if library is None:
        return vocab
    added = {
        content: number
        for content, number in _tokens(library.get("added_tokens")).items()
        if content in vocab
    }
    together = theirs | {
        content: number for content, number in added.items() if content not in theirs
    }
    for piece in sorted(vocab.keys() | together.keys(), key=lambda piece: vocab.get(piece, -1)):
        ours, other = vocab.get(piece, "none"), together.get(piece, "none")
        if ours != other:
            raise InputError(
                f"{os.path.join(folder, TOKENIZER_NAME)}: the id of {piece!r} is {other} there, "
                f"and {ours} in {_VOCAB_NAME}; delete the file that is not of this model"
            )
    return vocab


def _stripped(pieces: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Returns ids by piece as the vocabulary of a FullTokenizer has them, without blank pieces."""
    return {piece.strip(): number for piece, number in pieces if piece.strip()}


def _check_added_tokens(
    folder: str,
    config: Mapping[str, Any],
    library: Mapping[str, Any],
    vocab: Mapping[str, int],
    is_lowered: bool,
):
    """Refuses tokens that transformers takes out of a text before it splits the text into words."""
    special_path, added_path = (
        os.path.join(folder, name) for name in (_SPECIAL_TOKENS_NAME, _ADDED_TOKENS_NAME)
    )
    special, added = _object(special_path) or {}, _object(added_path) or {}
    _check_special_tokens(special, special_path)
    decoder = config.get("added_tokens_decoder")
    numbered = [
        {"id": int(number) if number.isdecimal() else None, "content": _content(token)}
        for number, token in (decoder if isinstance(decoder, dict) else {}).items()
    ]
    further = ("additional_special_tokens", "extra_special_tokens")
    places = {
        TOKENIZER_NAME: [_tokens(library.get("added_tokens"))],
        TOKENIZER_CONFIG_NAME: [
            _tokens(numbered),
            *(_tokens(config.get(name)) for name in further),
        ],
        _SPECIAL_TOKENS_NAME: [_tokens(special.get(name)) for name in further],
        _ADDED_TOKENS_NAME: [added],
    }
    for place, tables in places.items():
        for token, number in (item for table in tables for item in table.items()):
            vocabulary_id = vocab.get(token)
            fits_vocabulary = number is None or vocabulary_id in (None, number)
            if fits_vocabulary and (
                token in SPECIAL_TOKENS.values()
                or (vocabulary_id is not None and _is_word(token, is_lowered))
            ):
                continue
            raise InputError(
                f"{os.path.join(folder, place)}: the added token {token!r} is one token for "
                "transformers and would be split or get another id here; remove it from the file "
                "if your texts do not have it, or else train with a word in its place "
                "(official-bert grow_vocab adds words)"
            )


def _tokens(listed: Any) -> dict[str, int | None]:
    """Returns the ids of tokens in a list or an object, None for those without one."""
    values = (
        listed.values() if isinstance(listed, dict) else listed if isinstance(listed, list) else []
    )
    tokens = {}
    for value in values:
        content, number = _content(value), value.get("id") if isinstance(value, dict) else None
        if isinstance(content, str):
            tokens[content] = number if is_of_kind(number, int) else None
    return tokens


def _content(token: Any) -> Any:
    """Returns the text of a token, which is a text or an object with its text and rules."""
    return token.get("content") if isinstance(token, dict) else token


def _is_word(token: str, is_lowered: bool) -> bool:
    """Returns whether the rules of BERT leave a piece of the vocabulary as it is."""
    is_plain = (
        token.isalnum() and unicodedata.normalize("NFD", token) == token and max(token) < "\u3000"
    )
    return is_plain and (not is_lowered or token == token.lower())


def _listed(tokens: Any) -> str:
    return ", ".join(map(str, tokens)) if isinstance(tokens, list) else str(tokens)
