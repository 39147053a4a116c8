"""Defines absl flags from options classes; only scripts import this module."""

import contextlib
import dataclasses
import functools
import logging as std_logging
import math
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from absl import app, flags, logging

from official_bert import catalog
from official_bert.cli import help_text
from official_bert.io import files, processes, writing
from official_bert.io.errors import InputError, Terminated, WorkerLost, brief, did_you_mean
from official_bert.io.progress import updated_line
from official_bert.options.fields import (
    command_field,
    first_word_field,
    flag_fields,
    flag_without_effect,
    value_type,
    without_flag,
)
from official_bert.options.shared import ModelOptions

# The function of a command, which is called with the instance of its options class.
Command = Callable[[Any], object]

flags.disclaim_key_flags()  # the flags belong to the running script, whose --help lists them

_MISSING = "must be given"
_STRICT = "strict_flags"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Flags of the original and of earlier versions, and what the script says about each of them.
_FORMER_FLAGS = {
    "bert_hub_module_handle": "Hub modules are not supported; leave this flag out and give the "
    "model's files with --vocab_file, --bert_config_file and --init_checkpoint",
    "split_punctuation": "a tagger splits punctuation unless this flag is given: --pre_tokenized",
    "eval_every": "this flag is now --eval_every_steps or --eval_every_epochs, and "
    "--early_stopping_patience",
    "columns": "this flag is now --text_a_column, --text_b_column, --label_column, --has_header "
    "and --label_separator; run_embeddings and mine_hard_negatives have --anchor_column, "
    "--positive_column, --negative_columns, --label_column and --has_header",
}

_DEFINE = {
    bool: flags.DEFINE_boolean,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
    list[str]: flags.DEFINE_list,
    tuple[str, ...]: flags.DEFINE_multi_string,  # a flag that may be repeated
}


def run(
    load: Callable[[], Command],
    options_class: type,
    example: str = "",
    ignores_unknown_flags: bool = False,
) -> None:
    """Parse the command line into options, and call the function of a command with them.

    Scripts call this under `if __name__ == "__main__"`, because the import of a script must not
    define flags.

    Args:
        load: imports the function of the command.
        options_class: the class of the options.
        example: the words after the script in the example of --help.
        ignores_unknown_flags: see `parse`.
    """
    read = define(options_class)
    command: list[str] = []
    first_words: list[str] = []
    word_field = first_word_field(options_class)
    has_many_words = word_field is not None and value_type(word_field) is not str

    def parser(argv: list[str]) -> list[str]:
        while word_field and argv[1:] and not argv[1].startswith("-"):
            first_words.append(argv[1])
            argv = [argv[0], *argv[2:]]
            if not has_many_words:
                break
        if command_field(options_class) and "--" in argv:
            end = argv.index("--")
            command[:] = argv[end + 1 :]
            argv = argv[:end]
        help_text.answer_help(argv, options_class, example)
        return parse(argv, ignores_unknown_flags)

    def read_options() -> Any:
        return read(command, first_words)

    app.run(functools.partial(answer_for_input, load, read_options), flags_parser=parser)


def define(options_class: type) -> Callable[..., Any]:
    """Define a flag for each field of an options class.

    Args:
        options_class: a frozen dataclass.

    Returns:
        A function that makes an instance of the class from the parsed flags. Its arguments are the
        words behind `--` and those before all flags, for a class with fields for them.
    """
    if _STRICT not in flags.FLAGS:
        flags.DEFINE_boolean(
            _STRICT,
            False,
            "End the script at every unknown flag. --nostrict_flags ignores them with a warning.",
        )
    fields = flag_fields(options_class)
    words_field = command_field(options_class)
    word_field = first_word_field(options_class)
    for field in fields:
        _define_flag(field)
        _register_checks(field)

    def read(command: Sequence[str] = (), first_words: Sequence[str] = ()) -> Any:
        values = {field.name: _value(field) for field in fields}
        if words_field:
            values[words_field.name] = tuple(command)
        if word_field:
            is_one = value_type(word_field) is str
            values[word_field.name] = "".join(first_words) if is_one else tuple(first_words)
        options = options_class(**values)
        # The flags that other options need may be recorded in the folder of the model, which
        # `ModelSource.complete` reads.
        is_complete = not issubclass(options_class, ModelOptions)
        if is_complete and (sentence := flag_without_effect(options, options)):
            raise InputError(sentence)
        return options

    return read


def _define_flag(field: dataclasses.Field):
    """Defines the flag of a field, and its other name if it has one."""
    name = field.name
    metadata = field.metadata
    default: Any = None if help_text.is_required(field) else without_flag(field)
    if metadata["choices"]:
        flags.DEFINE_enum(name, default, list(metadata["choices"]), metadata["help"])
    else:
        _DEFINE[value_type(field)](name, default, metadata["help"])
    if metadata["alias"]:
        flags.DEFINE_alias(metadata["alias"], name)


def _register_checks(field: dataclasses.Field):
    """Registers the checks of absl for the value of a field's flag."""
    name = field.name
    if help_text.is_required(field):
        hint = field.metadata["hint_if_missing"]
        sentence = f"{_MISSING}{hint and f'; {hint}'}"
        flags.register_validator(name, lambda value: value is not None, sentence)
    if name.startswith("output_"):  # the name of a file or a folder, or a list of names
        flags.register_validator(name, _has_names, "a name is empty; give one")
    if not field.metadata["check"]:
        return
    is_valid, sentence = field.metadata["check"]
    if value_type(field) is float and not is_valid(math.inf):
        flags.register_validator(
            name, lambda value: value is None or math.isfinite(value), "must be a finite number"
        )
    flags.register_validator(name, lambda value: value is None or is_valid(value), sentence)


def _has_names(value: str | list[str] | None) -> bool:
    """Returns whether a flag has a name, or a list of names; None is a flag that is not typed."""
    if isinstance(value, list):
        return bool(value) and all(value)
    return value is None or bool(value)


def _value(field: dataclasses.Field) -> Any:
    """Returns the value of a parsed flag; None for an untyped one that a folder may record."""
    flag = flags.FLAGS[field.name]
    if field.metadata["fallback"] is not dataclasses.MISSING and not flag.present:
        return None
    return flag.value


def parse(argv: list[str], ignores_unknown_flags: bool = False) -> list[str]:
    """Parse a command line.

    An unknown flag that resembles a flag of the script ends it, because it is probably misspelt.
    Any other unknown flag of the command line ends it, too, except in the original's scripts.
    Those, and all scripts for flags of a --flagfile, which several commands may share, ignore it
    with a warning. --strict_flags refuses every unknown flag, and --nostrict_flags ignores every
    one.

    A word that belongs to no flag also ends the script: such a word is the value of a boolean flag,
    which needs `=`, or a part of a list that the shell split.

    Args:
        argv: the name of the script and the words after it.
        ignores_unknown_flags: whether the script is one of those of the original.

    Returns:
        The words that are not flags of the script.
    """
    try:
        words = flags.FLAGS.read_flags_from_files(argv[1:])
        for word in words:
            files.check_name(word)
            _refuse_former_flag(word)
        # This check precedes that of missing flags, because the word may be the value of one.
        if words and not words[0].startswith("-"):
            raise _stray(words[0])
        rest = flags.FLAGS([argv[0], *words], known_only=True)
        _refuse_strays([argv[0], *words], rest[1:])
        unknown = [word for word in rest[1:] if word.startswith("-")]
        descriptions = {word: f"{word}{_suggestion(word)}" for word in unknown}
        strict = flags.FLAGS[_STRICT]
        if unknown and strict.value:
            raise InputError(
                f"unknown flag, which --{_STRICT} refuses: {', '.join(descriptions.values())}"
            )
        typed = () if ignores_unknown_flags else argv[1:]
        # One with a suggestion is probably misspelt.
        refused = [text for word, text in descriptions.items() if text != word or word in typed]
        if refused and not strict.present:
            raise InputError(
                f"unknown flag: {', '.join(refused)} (--no{_STRICT} ignores unknown flags)"
            )
    except UnicodeDecodeError as error:
        sys.exit(f"{argv[0]}: --flagfile: has bytes that are not text ({error}); save it as UTF-8")
    except (flags.Error, InputError) as error:
        sys.exit(f"{argv[0]}: {_rewrite_message(str(error))}")
    for description in descriptions.values():
        logging.warning("unknown flag, ignored: %s", description)
    return rest


def _rewrite_message(message: str) -> str:
    """Returns absl's message about invalid values, with a line `--flag=value: sentence` each."""
    message = re.sub(
        r"invalid literal for int\(\) with base \d+: .*", "must be a whole number", message
    )
    message = re.sub(r"could not convert string to float: .*", "must be a number", message)
    message = re.sub(
        r"\('Non-boolean argument to boolean flag', .*\)", "must be true or false", message
    )
    message = re.sub(
        r"(?s)^flag (--\w+)=.*: Unable to parse the value (.*) as a comma.*",
        r"\1=\2: is not a comma-separated list of names; rename files whose name has a line break "
        "or a quote",
        message,
    )
    message = re.sub(f"(?m)^flag (--\\w+)=None: {_MISSING}", rf"\1: {_MISSING}", message)
    return re.sub(r"(?m)^flag (--\w+=)", r"\1", message)


def _suggestion(word: str) -> str:
    """Returns the question for the most similar flag of the script.

    It is "" if none is similar, and for a flag of another command, which a file of flags that
    several commands share may have.
    """
    name = word.lstrip("-").partition("=")[0]
    if not {name, name.removeprefix("no")}.isdisjoint(_all_flags()):
        return ""
    negations = [f"no{flag}" for flag in flags.FLAGS if flags.FLAGS[flag].boolean]
    question = did_you_mean(name, [*flags.FLAGS, *negations], mark="--")
    return question and f"; {question}"


def _all_flags() -> set[str]:
    """Returns the names of the flags of all commands, with their other names."""
    names = set()
    for command in catalog.commands():
        names |= {
            name
            for field in flag_fields(catalog.options_class(command))
            for name in (field.name, field.metadata["alias"])
        }
    return names


def _refuse_strays(argv: list[str], rest: list[str]):
    """Refuses words that are not flags, unless they follow an unknown flag: then they may be its
    value.
    """
    unparsed_words = list(rest)
    word_before = ""
    is_unknown_flag_before = False
    for word in argv[1:]:
        is_unparsed = bool(unparsed_words) and unparsed_words[0] == word
        if is_unparsed:
            del unparsed_words[0]
            if not word.startswith("-") and not is_unknown_flag_before:
                raise _stray(word, word_before)
        word_before = word
        is_flag_alone = bool(re.fullmatch("--?[^-=][^=]*", word))
        is_unknown_flag_before = is_unparsed and is_flag_alone


def _refuse_former_flag(word: str):
    """Ends the script at a flag of another version, because ignoring it would change the run."""
    name = word.lstrip("-").partition("=")[0]
    if word.startswith("-") and name in _FORMER_FLAGS:
        raise InputError(f"--{name}: {_FORMER_FLAGS[name]}")


def _stray(word: str, word_before: str = "") -> InputError:
    """Returns the error of a word that belongs to no flag."""
    if "max_restarts" in flags.FLAGS:  # of official-bert launch
        return InputError(
            f"the word {word!r} belongs to no flag; write -- before the command of the workers"
        )
    example = "--flag=value"
    if re.fullmatch("--[^-=]+", word_before):
        example = f"{word_before}={word}"
    return InputError(
        f"the word {word!r} belongs to no flag; write {example}, and lists with commas"
    )


class _PackageFilter(std_logging.Filter):
    """Accepts the log lines of this package and all warnings, because TensorFlow logs its savers
    at INFO.
    """

    def filter(self, record: std_logging.LogRecord) -> bool:
        return record.levelno >= std_logging.WARNING or _PACKAGE in record.pathname


class _Formatter(logging.PythonFormatter):
    """Writes log lines for people on a terminal: without the time and the place in the code.

    Files and pipes get absl's format, which programs read.
    """

    def format(self, record: std_logging.LogRecord) -> str:
        if not logging.get_absl_handler().python_handler.stream.isatty():
            return super().format(record)
        message = std_logging.Formatter.format(self, record)
        is_remarkable = record.levelno >= std_logging.WARNING
        return f"{record.levelname}: {message}" if is_remarkable else message


def answer_for_input(
    load: Callable[[], Command], read: Callable[[], Any], argv: Sequence[str] = ()
) -> None:
    """Call the function of a command with its options, and end the process in order.

    - An error that the user can fix ends in one sentence and status 1. Defects keep their
      traceback.
    - Errors of TensorFlow count as errors of files, memory or networks, except for those of
      computations. --verbosity=1 logs their traceback.
    - SIGTERM and SIGHUP unwind the stack like Ctrl-C, so that unfinished files are deleted. The
      process then exits with the status that shells use for the signal.

    Args:
        load: imports the function of the command.
        read: returns the options of the command.
        argv: the rest of the command line, which absl passes on. It is ignored, because `read`
            returns the options.
    """
    processes.end_in_order()
    logging.get_absl_handler().addFilter(_PackageFilter())
    logging.get_absl_handler().setFormatter(_Formatter())
    options = None
    try:
        try:
            options = read()
            load()(options)
        finally:
            updated_line.wipe()  # the sentence of an error is not a log line
    except KeyboardInterrupt:
        print(f"{sys.argv[0]}: interrupted{_format_resume_hint(options)}", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except Terminated as end:
        with contextlib.suppress(OSError):  # a terminal that is closed
            sentence = "terminated; files that were not complete are deleted"
            hint = _format_resume_hint(options)
            print(f"{sys.argv[0]}: {sentence}{hint}", file=sys.stderr)
        sys.exit(128 + end.number)
    except WorkerLost as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(WorkerLost.STATUS)
    except Exception as error:
        sentence = _find_sentence(error)
        if sentence is None:
            raise
        logging.debug("where it happened:", exc_info=error)
        sys.exit(f"{sys.argv[0]}: {sentence}")


def _format_resume_hint(options: Any) -> str:
    """Returns the end of a sentence that says how to resume the run; "" without such a hint."""
    hint = getattr(options, "resume_hint", "")
    return hint and f"; {hint}"


def _has_working_folder() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _find_sentence(error: Exception) -> str | None:
    """Returns the sentence for an error that the user can fix; None for a defect."""
    match error:
        case InputError():
            return str(error)
        case OSError() if error.filename is not None or error.strerror is not None:
            if error.filename is None and not _has_working_folder():
                return "the working folder of this run was deleted; change to another one"
            sentence = f"{error.filename or 'input or output'}: {error.strerror}"
            return "; ".join(filter(None, (sentence, writing.find_remedy(error))))
        case MemoryError():
            return f"the memory is full ({brief(error)}); give smaller batches or shorter sequences"
    return _find_tensorflow_sentence(error)


def _find_tensorflow_sentence(error: Exception) -> str | None:
    """Returns the sentence for an error of TensorFlow; None for a defect and for other errors."""
    tensorflow = sys.modules.get("tensorflow")  # it is loaded if it raised the error
    if not tensorflow or not isinstance(error, tensorflow.errors.OpError):
        return None
    errors = tensorflow.errors
    remedies = {
        errors.UnimplementedError: "give a path of this machine or of gs://",
        errors.ResourceExhaustedError: "make room on the disk, or give smaller batches",
        errors.UnavailableError: "check the network and run it again",
    }
    remedy = remedies.get(type(error))
    if remedy is None:
        if str(error).startswith("Graph execution error"):
            return None  # a computation, whose input files were checked before
        remedy = "check the files that the flags name, and their permissions"
    return f"{type(error).__name__}: {brief(error)}; {remedy}"
