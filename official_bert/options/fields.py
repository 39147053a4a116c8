"""An option: a dataclass field with its help text and its check."""

import dataclasses
import types
from collections.abc import Callable, Mapping
from typing import Any

Check = tuple[Callable[[Any], bool], str]

# Every number of a flag has an upper bound, so that a slip of the keyboard neither overflows a
# tensor nor fills the memory: what int32 holds, and less where memory or processes grow with the
# number.
MAX_NUMBER = 2**31 - 1
MAX_SIZE, MAX_LENGTH, MAX_PROCESSES = 2**22, 2**16, 2**10


# The chapters of --help. An options class names that of its flags in its attribute `chapter`;
# the flags of a class without it are in THIS_SCRIPT.
NEEDED = "Needed"
MODEL = "The model"
THIS_SCRIPT = "This script"
TEXT = "With --task_name=text"
COMMON = "Common to the training scripts"
DEVICES = "Devices"


def between(low: int, high: int, meaning: str = "") -> Check:
    """Returns the check of a number from `low`, whose meaning the sentence tells, to `high`."""
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
PROBABILITY: Check = (lambda p: 0.0 <= p <= 1.0, "must lie between 0 and 1")
SEED: Check = (lambda n: abs(n) < 2**63, "must fit 64 bits")


def kind_of(field: dataclasses.Field) -> type:
    """Returns the type of a field's value, None aside."""
    return field.type.__args__[0] if isinstance(field.type, types.UnionType) else field.type


def fault_of(field: dataclasses.Field, value) -> str | None:
    """Returns why a flag cannot have a value of its type, in words; None if it can."""
    choices, check = field.metadata["choices"], field.metadata["check"]
    if choices and value not in choices:
        return f"must be one of {', '.join(choices)}"
    return None if check is None or check[0](value) else check[1]


def flag_fields(options_class: type) -> list[dataclasses.Field]:
    return [
        field
        for field in dataclasses.fields(options_class)
        if not (field.metadata["after_dashes"] or field.metadata["is_first_word"])
    ]


def command_field(options_class: type) -> dataclasses.Field | None:
    """Returns the field of the words behind `--`; None for a script that takes none."""
    fields = dataclasses.fields(options_class)
    return next((field for field in fields if field.metadata["after_dashes"]), None)


def first_word_field(options_class: type) -> dataclasses.Field | None:
    """Returns the field of the word before all flags; None for a script that takes none."""
    fields = dataclasses.fields(options_class)
    return next((field for field in fields if field.metadata["is_first_word"]), None)


def without_flag(field: dataclasses.Field):
    """Returns the value of an option without its flag and without a model's folder that knows it."""
    fallback = field.metadata["fallback"]
    return field.default if fallback is dataclasses.MISSING else fallback


def flag_names(options_class: type, declaration: str) -> list[str]:
    """Returns the flags whose fields declare something, such as `changes_training`, as `option`
    describes.
    """
    return [
        field.name for field in dataclasses.fields(options_class) if field.metadata[declaration]
    ]


def flag_without_effect(typed, options) -> str | None:
    """Returns the sentence about a flag that has no effect with the others; None if each has one.

    Args:
        typed: options as they were typed; a value that holds without the flag, too, needs no
            effect.
        options: the same, completed by what the folder of the model says.
    """
    for field in dataclasses.fields(typed):
        value, needed = getattr(typed, field.name), field.metadata["only_with"]
        if not needed or value is None or value == without_flag(field):
            continue
        if not any(
            _has_value(getattr(options, name, None), values) for name, values in needed.items()
        ):
            flags = " or ".join(
                f"--{name}" + f"={'|'.join(values)}" * bool(values)
                for name, values in needed.items()
            )
            return (
                f"{format_flag(field.name, value)}: has no effect without {flags}; add that, or "
                "leave the flag out"
            )
    return None


def _has_value(value: object, accepted: tuple[str, ...]) -> bool:
    """Returns whether the value of a flag, or one of a list, is accepted."""
    if not accepted:
        return bool(value)
    return any(one in accepted for one in (value if isinstance(value, list) else [value]))


def format_flag(name: str, value: object) -> str:
    """Returns a flag as a user types it; what is not typed is "no --name"."""
    return f"no --{name}" if value is None else f"--{name}={format_value(value)}"


def format_value(value: object) -> str:
    """Returns the value of a flag as a user types it."""
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def option(
    default=dataclasses.MISSING,
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
) -> Any:
    """A field of an options class.

    Args:
        default: value without the flag; left out, the flag is required.
        help: text of `--help`.
        check: what a value must fulfil, and the sentence that says so.
        choices: the only values a string may take.
        alias: another name of the flag.
        basic: whether a beginner needs it, so that `--help` shows it; `--helpfull` shows all flags.
        fallback: for a field whose value the model's folder may say: the value without the flag and
            without such a folder. The default is then None, which `model_source.resolve` replaces.
        changes_training: whether the updates of a training depend on it, so that a run that resumes
            with another value names the flag.
        fixed_by_training: whether it changes a training and cannot change in its middle, so that a
            run that resumes with another value is refused. It is fixed after the training, too.
        fixed_after_training: whether evaluations and exports of a folder that records it refuse
            another value.
        only_with: the other flags with which it has an effect, any one of them, and the values that
            these need; () is any value. A run without them is refused.
        read_by: for a flag of official-bert export_saved_model that only some tasks read, what a
            message advises to export instead: "--long_texts=windows"; "" for no advice. None for a
            flag that does not depend on the task.
        names_model: whether the value is the path or the name of a model, so that another path to
            the same folder is the same value.
        after_dashes: whether the field is no flag, but the words behind the word `--`, as a tuple.
        is_first_word: whether the field is no flag, but the word before all flags.
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
    }
    return dataclasses.field(default=default, metadata=metadata)
