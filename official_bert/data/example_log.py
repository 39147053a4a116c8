"""Logs the first examples of a set: one line by default, and with --verbosity=1 all that the original logs of them."""

from collections.abc import Callable, Iterable, Sequence

from absl import logging

_SHOWN_TOKENS = 20


def log_example(tokens: Sequence[str], is_first: bool, details: Callable[[], Iterable[str]]):
    """Logs an example.

    Args:
        tokens: its tokens, of which the line by default shows the first ones.
        is_first: whether it is the first example of its set, which alone has a line by default.
        details: returns the lines of the original's log, which cost time to make.
    """
    if logging.level_debug():
        logging.debug("*** Example ***")
        for line in details():
            logging.debug("%s", line)
    elif is_first:
        more = " ..." if len(tokens) > _SHOWN_TOKENS else ""
        logging.info("First example: %s%s", " ".join(tokens[:_SHOWN_TOKENS]), more)
