"""The exceptions that users can do something about."""

import difflib
import os
import re
from collections.abc import Iterable

_SIMILARITY = 0.7  # lerning_rate has 0.96 of learning_rate; unrelated names stay below
_NODES = re.compile(r"\{\{.*?\}\} ?| \[Op:\w+\]")


class InputError(ValueError):
    """A file, flag or value that the user gave cannot be used.

    The message is one sentence that names the file, line or field, and a remedy. Scripts print it
    and exit with status 1. Any other exception is a defect of this project and keeps its traceback.
    """


class Diverged(InputError):
    """The loss or the weights became infinite, not a number or absurdly large; a search goes on
    with its next trial.
    """


class WorkerLost(Exception):
    """Another worker of the run has ended; the script ends with a status that tells a launcher
    to start all again.
    """

    STATUS = os.EX_TEMPFAIL


class Terminated(BaseException):
    """A signal arrived that ends the process. No handler of exceptions takes it for a fault."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


def no_attribute(module: str, name: str) -> AttributeError:
    """Returns the error of a name that a module lacks; it may be one of the original."""
    return AttributeError(
        f"module {module!r} has no attribute {name!r}; if it is one of the original's names, "
        "docs/public_names.md says what replaces it"
    )


def brief(error: Exception) -> str:
    """Returns the first line of an error's message, without the names of TensorFlow's nodes, for
    use in a sentence.
    """
    message = (getattr(error, "message", None) or str(error)).strip() or type(error).__name__
    return _NODES.sub("", message.splitlines()[0])


def did_you_mean(word: str, words: Iterable[str], mark: str = "") -> str:
    """Returns the question for a known word that begins like a wrong one or resembles it; "" if
    none does.

    `mark` stands before the word in the question, such as "--".
    """
    words = list(words)
    found = [known for known in words if word and known.startswith(word)]
    found = found or difflib.get_close_matches(word, words, n=1, cutoff=_SIMILARITY)
    return f"did you mean {mark}{found[0]}?" if found else ""


def warn(sentence: str, *values) -> None:
    """Logs a warning; for the files that light uses of the package import."""
    from absl import logging  # late: it loads absl.flags

    logging.warning(sentence, *values)
