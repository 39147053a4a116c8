"""An option: a dataclass field with its help text and its check."""

import dataclasses
import types
from collections.abc import Callable, Mapping
from typing import Any

from official_bert.io import files

Check = tuple[Callable[[Any], bool], str]

# Every number of a flag has an upper bound, so that a typing error neither overflows a tensor nor
# fills the memory. It is the largest int32, or less where memory or processes grow with the number.
MAX_NUMBER = 2**31 - 1
MAX_SIZE, MAX_LENGTH, MAX_PROCESSES = 2**22, 2**16, 2**10


# The chapters of --help. The attribute `chapter` of an options class names that of its flags; the
# flags of a class without it are in THIS_SCRIPT.
NEEDED = "Needed"
MODEL = "The model"
THIS_SCRIPT = "This script"
TEXT = "With --task_name=text"
COMMON = "Common to the training scripts"
DEVICES = "Devices"

# Of the flags that name something to read.
_PATH_ENDINGS = ("_file", "_dir")
_MODEL_FLAGS = ("model", "init_checkpoint")


def between(low: int, high: int, meaning: str = "") -> Check:
    """Return the check of a number.

    Args:
        low: the smallest valid number.
        high: the largest valid number.
        meaning: what `low` is, with a leading comma, for the sentence of an invalid number.
    """
    sentence = f"must be at least {low}{meaning}, and at most {high}"
    return (lambda n: low <= n <= high, sentence)


POSITIVE: Check = (lambda n: 0 < n <= MAX_NUMBER, f"must be positive and at most {MAX_NUMBER}")
NOT_NEGATIVE: Check = (
    lambda n: 0 <= n <= MAX_NUMBER,
    f"must not be negative, and at most {MAX_NUMBER}",
)
SIZE = between(1, MAX_SIZE)  # examples in a batch, lines of a vocabulary
LENGTH = between(1, MAX_LENGTH)  # tokens of a sequence
LENGTH_OR_NONE = between(0, MAX_LENGTH)
MIN_SEQ_LENGTH = between(3, MAX_LENGTH, ", the special tokens of a pair")
PROCESSES = between(1, MAX_PROCESSES)
PROBABILITY: Check = (lambda p: 0.0 <= p <= 1.0, "must be between 0 and 1")
_NUMBER_NAMES = {int: "a whole number", float: "a number"}
_BOOLEANS = ("true", "t", "1", "false", "f", "0")  # absl accepts these words.
SEED: Check = (lambda n: abs(n) < 2**63, "must fit 64 bits")


def value_type(field: dataclasses.Field) -> type:
    """Return the type of the values of a field, without None.

    Args:
        field: a field of an options class.
    """
    annotation = field.type
    assert not isinstance(annotation, str), "no module of options postpones its annotations"
    if isinstance(annotation, types.UnionType):
        return annotation.__args__[0]
    return annotation


def find_fault(field: dataclasses.Field, value: object) -> str | None:
    """Return why a flag cannot have a value, in words; None if it can.

    Args:
        field: the field of the flag.
        value: a value of the field's type.
    """
    choices = field.metadata["choices"]
    if choices and value not in choices:
        return f"must be one of {', '.join(choices)}"
    if field.metadata["check"] is None:
        return None
    is_valid, sentence = field.metadata["check"]
    return None if is_valid(value) else sentence


def find_text_fault(field: dataclasses.Field, text: str) -> str | None:
    """Return why a flag cannot have the value that a text stands for; None if it can.

    Args:
        field: the field of a flag with one value.
        text: the value as a user types it.
    """
    kind = value_type(field)
    if kind is bool:
        return None if text.lower() in _BOOLEANS else "must be true or false"
    try:
        value = kind(text)
    except ValueError:
        return f"must be {_NUMBER_NAMES[kind]}"
    return find_fault(field, value)


def flag_fields(options_class: type) -> list[dataclasses.Field]:
    """Return the fields of an options class that are flags.

    Args:
        options_class: the class.
    """
    return [
        field
        for field in dataclasses.fields(options_class)
        if not (field.metadata["after_dashes"] or field.metadata["is_first_word"])
    ]


def command_field(options_class: type) -> dataclasses.Field | None:
    """Return the field of the words behind `--`; None for a script without such words.

    Args:
        options_class: the class of the script's options.
    """
    fields = dataclasses.fields(options_class)
    return next((field for field in fields if field.metadata["after_dashes"]), None)


def first_word_field(options_class: type) -> dataclasses.Field | None:
    """Return the field of the words before all flags; None for a script without such words.

    Args:
        options_class: the class of the script's options.
    """
    fields = dataclasses.fields(options_class)
    return next((field for field in fields if field.metadata["is_first_word"]), None)


def without_flag(field: dataclasses.Field) -> Any:
    """Return the value of an option without its flag, and without a record in a model's folder.

    Args:
        field: the field of the option.
    """
    fallback = field.metadata["fallback"]
    return field.default if fallback is dataclasses.MISSING else fallback


def flag_names(options_class: type, declaration: str) -> list[str]:
    """Return the names of the flags with a declaration.

    Args:
        options_class: the class of the flags.
        declaration: an argument of `option`, such as `changes_training`.
    """
    return [
        field.name for field in dataclasses.fields(options_class) if field.metadata[declaration]
    ]


def list_typed_flags(options: Any) -> dict[str, Any]:
    """Return the flags that a user typed, by name, without those that have their defaults.

    Args:
        options: the options as typed, whose open values are not filled.
    """
    values = {field.name: getattr(options, field.name) for field in flag_fields(type(options))}
    return {
        field.name: values[field.name]
        for field in flag_fields(type(options))
        if values[field.name] != field.default
    }


def flag_without_effect(typed_options: Any, options: Any) -> str | None:
    """Return the sentence about the first flag that has no effect without others; None if there
    is none.

    Args:
        typed_options: the options as typed. A flag with its default value needs no effect.
        options: the same options, completed by the records of the model's folder.
    """
    for field in dataclasses.fields(typed_options):
        value = getattr(typed_options, field.name)
        needed = field.metadata["only_with"]
        if not needed or value is None or value == without_flag(field):
            continue
        has_effect = any(
            _has_value(getattr(options, name, None), values) for name, values in needed.items()
        )
        if not has_effect:
            alternatives = [
                f"--{name}={'|'.join(values)}" if values else f"--{name}"
                for name, values in needed.items()
            ]
            return (
                f"{format_flag(field.name, value)}: has no effect without "
                f"{' or '.join(alternatives)}; add that, or leave the flag out"
            )
    return None


def _has_value(value: object, accepted: tuple[str, ...]) -> bool:
    """Returns whether a flag has an accepted value, or a list with one; () accepts every value."""
    if not accepted:
        return bool(value)
    values = value if isinstance(value, list) else [value]
    return any(each in accepted for each in values)


def format_flag(name: str, value: object) -> str:
    """Return a flag as a user types it, or "no --name" for None.

    Args:
        name: the name of the flag.
        value: its value.
    """
    return f"no --{name}" if value is None else f"--{name}={format_value(value)}"


def format_value(value: object) -> str:
    """Return the value of a flag as a user types it.

    Args:
        value: the value; a list becomes comma-separated.
    """
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def names_missing_file(options: Any) -> bool:
    """Returns whether a flag names a local file or folder to read that does not exist.

    The name of a model and a glob count as missing, too.

    Args:
        options: the options of a command.
    """
    for field in dataclasses.fields(options):
        is_path = field.name.endswith(_PATH_ENDINGS) and not field.name.startswith("output_")
        if is_path or field.name in _MODEL_FLAGS or field.metadata["names_model"]:
            value = getattr(options, field.name)
            paths = value if isinstance(value, (list, tuple)) else [value]
            if any(path and _is_missing(path) for path in paths):
                return True
    return False


def _is_missing(path: str) -> bool:
    """Returns whether there is no such local file; "-" is standard input."""
    return path != "-" and not files.is_remote(path) and not files.exists(path)


def option(  # noqa: PLR0913 - each is named in a declaration
    default: object = dataclasses.MISSING,
    *,
    help: str,
    check: Check | None = None,
    choices: tuple[str, ...] | None = None,
    alias: str | None = None,
    basic: bool = False,
    fallback: object = dataclasses.MISSING,
    changes_training: bool = False,
    fixed_by_training: bool = False,
    fixed_after_training: bool = False,
    only_with: Mapping[str, tuple[str, ...]] = types.MappingProxyType({}),
    read_by: str | None = None,
    names_model: bool = False,
    after_dashes: bool = False,
    is_first_word: bool = False,
    hint_if_missing: str = "",
) -> Any:
    """Declare a field of an options class: a flag.

    Args:
        default: the value without the flag. A flag without a default is required.
        help: the text of `--help`.
        check: a function that returns whether a value is valid, and the sentence about an invalid
            one.
        choices: the valid values of a string; None for any.
        alias: another name of the flag.
        basic: whether `--help` shows the flag, because a beginner needs it; `--helpfull` shows all
            flags.
        fallback: for a field whose value the model's folder may record: the value without the flag
            and without such a folder. The default is then None, which `model_source.resolve`
            replaces.
        changes_training: whether the updates of a training depend on it, so that a run that resumes
            with another value names the flag.
        fixed_by_training: whether it changes a training and cannot change in its middle, so that a
            run that resumes with another value is refused. It is also fixed after the training.
        fixed_after_training: whether evaluations and exports of a folder that records it refuse
            another value.
        only_with: the other flags with which it has an effect, and the values that these need; ()
            is any value. A run without any of them is refused.
        read_by: for a flag of official-bert export_saved_model that only some tasks read, the hint
            what to export instead, such as "--long_texts=windows"; "" for no hint. None for a flag
            of all tasks.
        names_model: whether the value is the path or the name of a model, or a list of them. Then
            another path to the same folder is the same value, and `names_missing_file` reads it.
        after_dashes: whether the field is not a flag but the words behind `--`, as a tuple.
        is_first_word: whether the field is not a flag but the word before all flags, or for a tuple
            all words before them.
        hint_if_missing: for a required flag: what to give, the end of the message without it.
    """
    if fallback is not dataclasses.MISSING:
        default = None
    metadata = {
        "help": help,
        "check": check,
        "choices": choices,
        "alias": alias,
        "basic": basic,
        "fallback": fallback,
        "changes_training": changes_training or fixed_by_training,
        "fixed_by_training": fixed_by_training,
        "fixed_after_training": fixed_after_training or fixed_by_training,
        "only_with": only_with,
        "read_by": read_by,
        "names_model": names_model,
        "after_dashes": after_dashes,
        "is_first_word": is_first_word,
        "hint_if_missing": hint_if_missing,
    }
    return dataclasses.field(default=default, metadata=metadata)
