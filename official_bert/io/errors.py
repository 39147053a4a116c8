"""The exceptions that users can do something about."""

import contextlib
import difflib
import logging as std_logging
import re
from collections.abc import Iterable, Iterator, Mapping

from official_bert.io import operating_system

_SIMILARITY = 0.7  # lerning_rate has 0.96 of learning_rate; unrelated names stay below
_FLAG = re.compile(r"--([a-z]\w+)(=([\w./|-]*[\w/])?)?(\.\.\.)?(:?)")
_NODES = re.compile(r"\{\{.*?\}\} ?| \[Op:\w+\]")


class InputError(ValueError):
    """A file, flag or value of the user cannot be used.

    The message is one sentence that names the file, line or field, and a remedy. Scripts print it
    and exit with status 1. Any other exception is a defect of this project and keeps its traceback.

    Example:
        ```python
        from official_bert import InputError, Predictor

        try:
            Predictor("no_such_folder")
        except InputError as error:
            print(error)
        ```
    """


class Diverged(InputError):
    """The loss or the weights became infinite, not a number or absurdly large.

    A search continues with its next trial.
    """


class WorkerLost(Exception):
    """Another worker of the run has ended.

    The script exits with `STATUS`, after which a launcher starts all workers again.
    """

    STATUS = operating_system.TRY_AGAIN_STATUS


class Terminated(BaseException):
    """A signal arrived that ends the process.

    It is a BaseException, so that no `except Exception` handles it as a fault.
    """

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


def no_attribute(module: str, name: str) -> AttributeError:
    """Returns the error of a name that a module lacks; it may be a name of the original.

    Args:
        module: the name of the module, for the message.
        name: the name that the module lacks.
    """
    return AttributeError(
        f"module {module!r} has no attribute {name!r}; if it is one of the original's names, "
        "docs/public_names.md says what replaces it"
    )


def brief(error: Exception) -> str:
    """Returns the first line of an error's message, for use in a sentence.

    The names of TensorFlow's nodes are left out.

    Args:
        error: the error; the name of its type stands for an empty message.
    """
    message = (getattr(error, "message", None) or str(error)).strip() or type(error).__name__
    return _NODES.sub("", message.splitlines()[0])


def did_you_mean(word: str, words: Iterable[str], mark: str = "") -> str:
    """Returns the question "did you mean ...?" with the word that the user may have meant.

    Args:
        word: the unknown word that the user typed.
        words: the known words. One that begins with `word` is preferred to one that resembles it.
        mark: text in front of the word in the question, such as "--".

    Returns:
        The question, or "" if no known word begins with `word` or resembles it.
    """
    words = list(words)
    matches = [known_word for known_word in words if word and known_word.startswith(word)]
    if not matches:
        matches = difflib.get_close_matches(word, words, n=1, cutoff=_SIMILARITY)
    return f"did you mean {mark}{matches[0]}?" if matches else ""


@contextlib.contextmanager
def naming_arguments(names: Iterable[str], others: Mapping[str, str]) -> Iterator[None]:
    """Replaces flags in errors and warnings by arguments, for functions that users call.

    Args:
        names: the names of the arguments that are named like their flags.
        others: another part of a message, such as a flag -> its replacement.

    Raises:
        InputError: the context has raised one.
    """
    # absl.logging loads absl.flags, so it is imported only when it is needed.
    from absl import logging

    def rewrite(record: std_logging.LogRecord) -> bool:
        if record.levelno >= std_logging.WARNING:
            record.msg = format_arguments(record.getMessage(), names, others)
            record.args = ()
        return True

    names = list(names)
    logger = logging.get_absl_logger()
    logger.addFilter(rewrite)
    try:
        yield
    except InputError as error:
        sentence = format_arguments(str(error), names, others)
        if sentence == str(error):
            raise
        raise type(error)(sentence).with_traceback(error.__traceback__) from error.__cause__
    finally:
        logger.removeFilter(rewrite)


def format_arguments(sentence: str, names: Iterable[str], others: Mapping[str, str]) -> str:
    """Returns a message with arguments of Python in place of flags, as `model=`.

    Args:
        sentence: the message.
        names: as of `naming_arguments`.
        others: as of `naming_arguments`.
    """
    for part, replacement in others.items():
        sentence = re.sub(rf"{re.escape(part)}(?!\w)", replacement, sentence)
    known_names = set(names)

    def replace(match: re.Match) -> str:
        return _format_argument(match) if match[1] in known_names else match[0]

    return _FLAG.sub(replace, sentence)


def _format_argument(match: re.Match) -> str:
    name, has_value, value, dots, colon = match.groups()
    if not has_value:
        return f"{name}:" if colon else f"{name}={dots or ''}"
    if not value:
        return f"{name}={dots or repr('')}{colon}"
    return f"{name}={_format_value(value)}{dots or ''}{colon}"


def _format_value(value: str) -> str:
    if value in ("true", "false"):
        return value.capitalize()
    try:
        float(value)
    except ValueError:
        return repr(value)
    return value


def warn(sentence: str, *values: object) -> None:
    """Logs a warning; modules that must load quickly use it in place of absl's logging.

    Args:
        sentence: the message, with a placeholder such as %s for each value.
        *values: the values of the placeholders.
    """
    if _collected is not None:
        _collected.append((sentence, *values))
        return
    # absl.logging loads absl.flags, so it is imported only when it is needed.
    from absl import logging

    logging.warning(sentence, *values)


_collected: list[tuple] | None = None


@contextlib.contextmanager
def collected_warnings() -> Iterator[list[tuple]]:
    """A context in which a worker process logs no warning.

    Yields:
        The arguments of each call of `warn`, which the parent process repeats.
    """
    global _collected
    _collected = []
    try:
        yield _collected
    finally:
        _collected = None
