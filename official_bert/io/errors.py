"""The exceptions that users can do something about."""

import difflib
import os
import re
from collections.abc import Iterable

_SIMILARITY = 0.7  # lerning_rate has 0.96 of learning_rate; unrelated names stay below
_NODES = re.compile(r"\{\{.*?\}\} ?| \[Op:\w+\]")


class InputError(ValueError):
    """A file, flag or value of the user cannot be used.

    The message is one sentence that names the file, line or field, and a remedy. Scripts print it
    and exit with status 1. Any other exception is a defect of this project and keeps its traceback.
    """


class Diverged(InputError):
    """The loss or the weights became infinite, not a number or absurdly large.

    A search continues with its next trial.
    """


class WorkerLost(Exception):
    """Another worker of the run has ended.

    The script exits with `STATUS`, after which a launcher starts all workers again.
    """

    STATUS = os.EX_TEMPFAIL


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


def warn(sentence: str, *values: object) -> None:
    """Logs a warning; modules that must load quickly use it in place of absl's logging.

    Args:
        sentence: the message, with a placeholder such as %s for each value.
        *values: the values of the placeholders.
    """
    # absl.logging loads absl.flags, so it is imported only when it is needed.
    from absl import logging

    logging.warning(sentence, *values)
