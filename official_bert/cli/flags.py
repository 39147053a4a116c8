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
import tempfile

from absl import app, flags, logging

from official_bert.io import files, processes, writing
from official_bert.io.errors import InputError, Terminated, WorkerLost, brief, did_you_mean
from official_bert.io.progress import updated_line
from official_bert.options.fields import (
    COMMON,
    DEVICES,
    MODEL,
    NEEDED,
    TEXT,
    THIS_SCRIPT,
    command_field,
    first_word_field,
    flag_fields,
    flag_without_effect,
    kind_of,
    without_flag,
)
from official_bert.options.shared import ModelOptions

EVERY_SCRIPT = "Every script"
ORDER = (NEEDED, MODEL, THIS_SCRIPT, TEXT, COMMON, DEVICES)
MAX_BASIC = 10  # a script with more flags shows only the basic ones in --help


def is_required(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING


def heading_of(options_class: type, field: dataclasses.Field) -> str:
    if is_required(field):
        return NEEDED
    if field.name in ("init_checkpoint", "bert_config_file", "vocab_file"):
        return MODEL
    defined_in = next(
        cls for cls in options_class.__mro__ if field.name in vars(cls).get("__annotations__", ())
    )
    return vars(defined_in).get("chapter", THIS_SCRIPT)


flags.disclaim_key_flags()  # the flags belong to the running script, whose --help lists them

_HELP_FLAGS = {"--help", "-help", "-?", "--helpshort", "-helpshort"}
_HELPFULL_FLAGS = {"--helpfull", "-helpfull"}
_MISSING = "must be given"
_STRICT = "strict_flags"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Flags of the original and of earlier versions, and what the script says about each of them.
_FORMER_FLAGS = {
    "bert_hub_module_handle": "Hub modules are not supported; leave this flag out and give the "
    "model's files with --vocab_file, --bert_config_file and --init_checkpoint",
    "eval_every": "this flag is now --eval_every_steps or --eval_every_epochs, and "
    "--early_stopping_patience",
    "columns": "this flag is now --text_a_column, --text_b_column, --label_column, --has_header and "
    "--label_separator; run_embeddings and mine_hard_negatives have --anchor_column, "
    "--positive_column, --negative_columns, --label_column and --has_header",
}

_DEFINE = {
    bool: flags.DEFINE_boolean,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
    list[str]: flags.DEFINE_list,
}


def run(load, options_class):
    """Parses the command line into an instance of `options_class` and calls the function that
    `load` imports with it.

    Scripts call it under `if __name__ == "__main__"`, because the import of a script must not
    define flags.
    """
    read = define(options_class)
    command: list[str] = []
    first_word: list[str] = []

    def parser(argv):
        if first_word_field(options_class) and argv[1:] and not argv[1].startswith("-"):
            first_word[:], argv = argv[1:2], [argv[0], *argv[2:]]
        if command_field(options_class) and "--" in argv:
            end = argv.index("--")
            argv, command[:] = argv[:end], argv[end + 1 :]
        _answer_help(argv, options_class)
        return parse(argv)

    def read_options():
        return read(command, *first_word)

    app.run(functools.partial(answer_for_input, load, read_options), flags_parser=parser)


def define(options_class):
    """Defines a flag for each field of a frozen dataclass, and returns a function that builds it
    from parsed flags.

    The function takes the words behind `--`, and the word before all flags, for an options class
    that has a field for them.
    """
    if _STRICT not in flags.FLAGS:
        flags.DEFINE_boolean(
            _STRICT,
            False,
            "End the script at an unknown flag, which is otherwise ignored with a warning.",
        )
    fields, words_field = flag_fields(options_class), command_field(options_class)
    word_field = first_word_field(options_class)
    for field in fields:
        _define_flag(field)
        _register_checks(field)

    def read(command=(), first_word=""):
        values = {field.name: _value(field) for field in fields}
        if words_field:
            values[words_field.name] = tuple(command)
        if word_field:
            values[word_field.name] = first_word
        options = options_class(**values)
        # What other options need may be in the folder of the model, which `ModelSource.complete`
        # reads.
        is_complete = not issubclass(options_class, ModelOptions)
        if is_complete and (sentence := flag_without_effect(options, options)):
            raise InputError(sentence)
        return options

    return read


def _define_flag(field: dataclasses.Field):
    """Defines the flag of a field, and its other name if it has one."""
    name, metadata = field.name, field.metadata
    default = None if is_required(field) else without_flag(field)
    if metadata["choices"]:
        flags.DEFINE_enum(name, default, list(metadata["choices"]), metadata["help"])
    else:
        _DEFINE[kind_of(field)](name, default, metadata["help"])
    if metadata["alias"]:
        flags.DEFINE_alias(metadata["alias"], name)


def _register_checks(field: dataclasses.Field):
    """Registers what absl checks when it parses the flag of a field."""
    name = field.name
    if is_required(field):
        flags.register_validator(name, lambda value: value is not None, _MISSING)
    if name.startswith("output_"):  # the name of a file or a folder, or a list of names
        flags.register_validator(name, _is_named, "a name is empty; give one")
    if not field.metadata["check"]:
        return
    is_valid, sentence = field.metadata["check"]
    if kind_of(field) is float and not is_valid(math.inf):
        flags.register_validator(
            name, lambda value: value is None or math.isfinite(value), "must be a finite number"
        )
    flags.register_validator(name, lambda value: value is None or is_valid(value), sentence)


def _is_named(value: str | list[str] | None) -> bool:
    return value is None or (all(value) if isinstance(value, list) and value else bool(value))


def _value(field: dataclasses.Field):
    """Returns the value of a parsed flag; None without the flag if the model's folder may say it."""
    flag = flags.FLAGS[field.name]
    if field.metadata["fallback"] is not dataclasses.MISSING and not flag.present:
        return None
    return flag.value


def parse(argv):
    """Parses a command line; a warning names an unknown flag, which is ignored, as the original's
    parser does.

    With --strict_flags it ends the script, as does a word that belongs to no flag: it is the value
    of a boolean flag, which needs `=`, or of a list that the shell took apart.
    """
    try:
        words = flags.FLAGS.read_flags_from_files(argv[1:])
        for word in words:
            files.check_name(word)
            _refuse_former_flag(word)
        # Said before the flags that are missing, for it may be the value of one of them.
        if words and not words[0].startswith("-"):
            raise _stray(words[0])
        rest = flags.FLAGS([argv[0], *words], known_only=True)
        _refuse_strays([argv[0], *words], rest[1:])
        unknown = [f"{word}{_suggestion(word)}" for word in rest[1:] if word.startswith("-")]
        if unknown and flags.FLAGS[_STRICT].value:
            raise InputError(f"unknown flag, which --{_STRICT} refuses: {', '.join(unknown)}")
    except UnicodeDecodeError as error:
        sys.exit(f"{argv[0]}: --flagfile: holds bytes that are no text ({error}); save it as UTF-8")
    except (flags.Error, InputError) as error:
        sys.exit(f"{argv[0]}: {_in_our_words(str(error))}")
    for word in unknown:
        logging.warning("unknown flag, ignored: %s", word)
    return rest


def _in_our_words(message: str) -> str:
    """Returns absl's message of values that are refused, a line each, in the form `--flag=value:
    sentence`.
    """
    message = re.sub(
        r"invalid literal for int\(\) with base \d+: .*", "must be a whole number", message
    )
    message = re.sub(r"could not convert string to float: .*", "must be a number", message)
    message = re.sub(
        r"\('Non-boolean argument to boolean flag', .*\)", "must be true or false", message
    )
    message = re.sub(
        r"(?s)^flag (--\w+)=.*: Unable to parse the value (.*) as a comma.*",
        r"\1=\2: is no list of names with commas between them; rename what has a line break or a quote in its name",
        message,
    )
    message = re.sub(f"(?m)^flag (--\\w+)=None: {_MISSING}$", rf"\1: {_MISSING}", message)
    return re.sub(r"(?m)^flag (--\w+=)", r"\1", message)


def _suggestion(word: str) -> str:
    """Returns the question for the known flag that an unknown one resembles most; "" if it
    resembles none.
    """
    name = word.lstrip("-").partition("=")[0]
    known = [*flags.FLAGS, *(f"no{flag}" for flag in flags.FLAGS if flags.FLAGS[flag].boolean)]
    question = did_you_mean(name, known, mark="--")
    return question and f"; {question}"


def _answer_help(argv, options_class):
    """Prints the flags under their headings and ends the script with status 0 if --help is given."""
    shows_all = bool(_HELPFULL_FLAGS.intersection(argv[1:]))
    if not (shows_all or _HELP_FLAGS.intersection(argv[1:])):
        return
    with quiet_reader():
        _print_help(argv, options_class, shows_all)
    sys.exit(0)


@contextlib.contextmanager
def quiet_reader():
    """Ends a print quietly when its reader closes the pipe, as after `| head`."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Redirects what is not yet flushed, so that Python reports no error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def basic_fields(options_class) -> list[dataclasses.Field]:
    """Returns the flags that --help shows: all of a few, else those that a beginner needs."""
    fields = flag_fields(options_class)
    if len(fields) <= MAX_BASIC:
        return fields
    return [field for field in fields if is_required(field) or field.metadata["basic"]]


def _print_help(argv, options_class, shows_all: bool):
    of_command = command_field(options_class)
    of_first_word = first_word_field(options_class)
    command = f" -- {of_command.name} ..." if of_command else ""
    first_word = f" {of_first_word.name.upper()}" if of_first_word else ""
    print(
        f"{sys.modules['__main__'].__doc__.strip()}\n\nusage: {argv[0]}{first_word} --flag=value "
        f"...{command}\n"
    )
    if of_first_word:
        print(f"{of_first_word.name.upper()}: {of_first_word.metadata['help']}\n")
    if of_command:
        print(f"{of_command.name}: {of_command.metadata['help']}\n")
    fields = flag_fields(options_class)
    shown = fields if shows_all else basic_fields(options_class)
    for heading in ORDER:
        found = [field for field in shown if heading_of(options_class, field) == heading]
        _print_part(heading, [text for field in found for text in _help_of_field(field)])
    if shows_all:
        own = {name for field in fields for name in (field.name, field.metadata["alias"])}
        _print_part(
            EVERY_SCRIPT, [_help_of(name) for name in sorted(flags.FLAGS) if name not in own]
        )
        return
    hidden = f"{len(fields) - len(shown)} more flags and " if len(shown) < len(fields) else ""
    print(
        f"--helpfull shows {hidden}those of every script, such as --verbosity (-1 logs warnings "
        "only, 1 the original's details),\n--strict_flags, which ends the script at an unknown "
        "flag, and --flagfile=FILE, a file with a flag on each line."
    )


def _print_part(heading: str, texts: list[str]):
    if texts:
        print(f"{heading}:", *texts, "", sep="\n")


def _help_of_field(field: dataclasses.Field) -> list[str]:
    alias = field.metadata["alias"]
    return [
        _help_of(field.name, "(required)" if is_required(field) else ""),
        *([_help_of(alias)] if alias else []),
    ]


def _help_of(name: str, mark: str = "") -> str:
    flag = flags.FLAGS[name]
    text = f"--{'[no]' if flag.boolean else ''}{name}: {flag.help}"
    wrapped = flags.text_wrap(text, indent="    ", firstline_indent="  ")
    default = f"(default: {flag.default_as_str})" if flag.default_as_str else ""
    choices = f"({flag.parser.syntactic_help})" if flag.parser.syntactic_help else ""
    return "\n".join((wrapped, *(f"    {more}" for more in (mark, default, choices) if more)))


def _refuse_strays(argv, rest):
    """Refuses the words that neither are flags nor follow an unknown flag, whose value they may be."""
    left, before, before_is_unknown = list(rest), "", False
    for word in argv[1:]:
        is_left = bool(left) and left[0] == word
        if is_left:
            del left[0]
            if not word.startswith("-") and not before_is_unknown:
                raise _stray(word, before)
        before, before_is_unknown = word, is_left and bool(re.fullmatch("--?[^-=][^=]*", word))


def _refuse_former_flag(word: str):
    """Ends the script at a flag that other versions have, without which the run would be another
    one.
    """
    name = word.lstrip("-").partition("=")[0]
    if word.startswith("-") and name in _FORMER_FLAGS:
        raise InputError(f"--{name}: {_FORMER_FLAGS[name]}")


def _stray(word: str, before: str = "") -> InputError:
    """Returns the error of a word that belongs to no flag, behind the word `before`."""
    if "max_restarts" in flags.FLAGS:  # of official-bert launch
        return InputError(
            f"the word {word!r} belongs to no flag; write -- before the command of the workers"
        )
    example = f"{before}={word}" if re.fullmatch("--[^-=]+", before) else "--flag=value"
    return InputError(
        f"the word {word!r} belongs to no flag; write {example}, and lists with commas"
    )


@contextlib.contextmanager
def quiet_imports():
    """Hides the start-up messages of TensorFlow during its import, unless the import fails.

    TensorFlow writes some of them before it reads any log level. The messages are shown if
    TF_CPP_MIN_LOG_LEVEL is below 3.
    """
    if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") != "3":
        yield
        return
    sys.stderr.flush()
    shown = os.dup(2)
    with tempfile.TemporaryFile() as kept_back:
        os.dup2(kept_back.fileno(), 2)
        try:
            yield
        except Exception:
            kept_back.seek(0)
            os.write(shown, kept_back.read())
            raise
        finally:
            os.dup2(shown, 2)
            os.close(shown)


class _OwnLines(std_logging.Filter):
    """Accepts the log lines of this package and all warnings; TensorFlow logs its savers at INFO."""

    def filter(self, record):
        return record.levelno >= std_logging.WARNING or _PACKAGE in record.pathname


def answer_for_input(load, read, argv=()):
    """Calls what `load` imports with the options that `read` returns.

    An error that the user can fix ends in one sentence and status 1; defects keep their traceback.
    Errors of TensorFlow are errors of files, memory or networks unless the log says otherwise:
    their traceback is logged with --verbosity=1. SIGTERM and SIGHUP unwind the stack like Ctrl-C,
    so that unfinished files are deleted. After a signal the process exits with the status that
    shells use for it.

    Args:
        load: imports the function of the command.
        read: returns the options of the command.
        argv: the rest of the command line, which absl passes on. It is ignored, because `read`
            knows the options.
    """
    processes.end_in_order()
    logging.get_absl_handler().addFilter(_OwnLines())
    options = None
    try:
        try:
            options = read()
            load()(options)
        finally:
            updated_line.wipe()  # before a sentence that is no log line
    except KeyboardInterrupt:
        print(f"{sys.argv[0]}: interrupted{_remedy_of_a_stop(options)}", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except Terminated as end:
        with contextlib.suppress(OSError):  # a terminal that is closed
            sentence = (
                f"terminated; files that were not complete are deleted{_remedy_of_a_stop(options)}"
            )
            print(f"{sys.argv[0]}: {sentence}", file=sys.stderr)
        sys.exit(128 + end.number)
    except WorkerLost as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(WorkerLost.STATUS)
    except Exception as error:
        sentence = _sentence_of(error)
        if sentence is None:
            raise
        logging.debug("where it happened:", exc_info=error)
        sys.exit(f"{sys.argv[0]}: {sentence}")


def _remedy_of_a_stop(options) -> str:
    remedy = getattr(options, "after_a_stop", "")
    return remedy and f"; {remedy}"


def _has_working_folder() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _sentence_of(error: Exception) -> str | None:
    """Returns the sentence for an error that the user can fix; None for a defect."""
    tensorflow = sys.modules.get("tensorflow")  # loaded by whoever raised one of its errors
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
        case _ if tensorflow and isinstance(error, tensorflow.errors.OpError):
            remedies = {
                tensorflow.errors.UnimplementedError: "give a path of this machine or of gs://",
                tensorflow.errors.ResourceExhaustedError: "make room on the disk, or give smaller batches",
                tensorflow.errors.UnavailableError: "check the network and run it again",
            }
            if type(error) not in remedies and error.message.startswith("Graph execution error"):
                return None  # of a computation, which reads no file that was not checked
            remedy = remedies.get(
                type(error), "check the files that the flags name, and their permissions"
            )
            return f"{type(error).__name__}: {brief(error)}; {remedy}"
    return None
