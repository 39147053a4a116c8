"""The exceptions that users can do something about."""

import re

_NODES = re.compile(r"\{\{.*?\}\} ?| \[Op:\w+\]")


class InputError(ValueError):
    """A file, flag or value that the user gave cannot be used.

    The message is one sentence that names the file, line or field, and a remedy. Scripts print it and exit with
    status 1. Any other exception is a defect of this project and keeps its traceback.
    """


class Diverged(InputError):
    """The loss or the weights became infinite, not a number or absurdly large; a search goes on with its next trial."""


def brief(error: Exception) -> str:
    """Returns the first line of an error's message, without the names of TensorFlow's nodes, for use in a sentence."""
    message = (getattr(error, "message", None) or str(error)).strip() or type(error).__name__
    return _NODES.sub("", message.splitlines()[0])


def warn(sentence: str, *values):
    """Logs a warning; for the files that light uses of the package import."""
    from absl import logging  # late: it loads absl.flags

    logging.warning(sentence, *values)
