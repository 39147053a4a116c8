"""Defines absl flags from options classes; only scripts import this module."""

import contextlib
import dataclasses
import logging as std_logging
import os
import signal
import sys
import tempfile
import types
import typing

from absl import app, flags, logging

from official_bert.errors import InputError

flags.disclaim_key_flags()  # the flags belong to the running script, whose --help lists them

_PACKAGE = os.path.dirname(os.path.abspath(__file__))

_DEFINE = {
    bool: flags.DEFINE_boolean,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
    list[str]: flags.DEFINE_list,
}


class _Refuses(flags.ArgumentParser):
    """Ends the reading of the command line, before absl looks for required flags, when the flag is given."""

    def __init__(self, sentence: str):
        self._sentence = sentence

    def parse(self, argument):
        raise ValueError(self._sentence)


def run(main, options_class):
    """Parses the command line into an instance of `options_class` and calls `main` with it.

    Scripts call it under `if __name__ == "__main__"`, because the import of a script must not define flags.
    """
    read = define(options_class)
    app.run(lambda _: answer_for_input(main, read), flags_parser=parse)


def define(options_class):
    """Defines a flag for each field of a frozen dataclass, and returns a function that builds it from parsed flags."""
    fields = dataclasses.fields(options_class)
    types_of = typing.get_type_hints(options_class)
    for field in fields:
        required = field.default is dataclasses.MISSING
        default = None if required else field.default
        kind = types_of[field.name]
        if isinstance(kind, types.UnionType):
            kind = kind.__args__[0]
        if field.metadata["refused"]:
            flags.DEFINE(_Refuses(field.metadata["refused"]), field.name, default, field.metadata["help"])
        elif field.metadata["choices"]:
            flags.DEFINE_enum(field.name, default, list(field.metadata["choices"]), field.metadata["help"])
        else:
            _DEFINE[kind](field.name, default, field.metadata["help"])
        if field.metadata["alias"]:
            flags.DEFINE_alias(field.metadata["alias"], field.name)
        if required:
            flags.mark_flag_as_required(field.name)
        if field.metadata["check"]:
            holds, sentence = field.metadata["check"]
            flags.register_validator(
                field.name, lambda value, holds=holds: value is None or holds(value), sentence
            )
    return lambda: options_class(**{field.name: flags.FLAGS[field.name].value for field in fields})


def parse(argv):
    """Parses a command line; a warning names an unknown flag, which is ignored, as the original's parser does."""
    try:
        rest = flags.FLAGS(argv, known_only=True)
    except flags.Error as error:
        sys.exit(f"{argv[0]}: {error}")
    for word in rest[1:]:
        if word.startswith("-"):
            logging.warning("unknown flag, ignored: %s", word)
    return rest


@contextlib.contextmanager
def quiet_imports():
    """Hides the start-up messages of TensorFlow during its import, unless the import fails.

    TensorFlow writes some of them before it reads any log level. The messages are shown if TF_CPP_MIN_LOG_LEVEL is
    below 3.
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
        except BaseException:
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


def answer_for_input(main, read):
    """Calls `main`; an error that the user can fix ends in one sentence and status 1, defects keep their traceback.

    SIGTERM unwinds the stack like Ctrl-C, so that unfinished files are deleted. After either signal the process exits
    with the status that shells use for it.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    logging.set_verbosity(logging.INFO)
    logging.get_absl_handler().addFilter(_OwnLines())
    try:
        main(read())
    except KeyboardInterrupt:
        print(f"{sys.argv[0]}: interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except InputError as error:
        sys.exit(f"{sys.argv[0]}: {error}")
    except OSError as error:
        if error.filename is None and error.strerror is None:
            raise
        sys.exit(f"{sys.argv[0]}: {error.filename or 'output'}: {error.strerror}")
