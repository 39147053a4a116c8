"""Hides the start-up messages of TensorFlow while it is imported."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"
_NONE = "3"  # the level at which TensorFlow's libraries log nothing


def set_log_level() -> None:
    """Keeps TensorFlow's libraries from logging, unless the environment chooses a level."""
    os.environ.setdefault(_VARIABLE, _NONE)


@contextlib.contextmanager
def quiet_imports() -> Iterator[None]:
    """Hide the start-up messages of TensorFlow during its import, unless the import fails.

    TensorFlow writes some of them before it reads any log level. A TF_CPP_MIN_LOG_LEVEL below 3
    shows the messages.
    """
    set_log_level()
    if os.environ[_VARIABLE] != _NONE or "tensorflow" in sys.modules:
        yield
        return
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as hidden_messages:
        os.dup2(hidden_messages.fileno(), 2)
        try:
            yield
        except Exception:
            hidden_messages.seek(0)
            os.write(stderr, hidden_messages.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
