"""An option: a dataclass field with its help text and its check."""

import dataclasses
import math
from collections.abc import Callable

Check = tuple[Callable[[object], bool], str]

POSITIVE: Check = (lambda n: 0 < n < math.inf, "must be positive and finite")
NOT_NEGATIVE: Check = (lambda n: 0 <= n < math.inf, "must be finite and not negative")
MIN_SEQ_LENGTH: Check = (lambda n: n >= 3, "must be at least 3, the special tokens of a pair")
PROBABILITY: Check = (lambda p: 0.0 <= p <= 1.0, "must lie between 0 and 1")


def option(
    default=dataclasses.MISSING,
    *,
    help: str,
    check: Check | None = None,
    choices: tuple[str, ...] | None = None,
    alias: str | None = None,
    refused: str | None = None,
):
    """A field of an options class.

    Args:
        default: value without the flag; left out, the flag is required.
        help: text of `--help`.
        check: a predicate and the sentence for when it fails.
        choices: the only values a string may take.
        alias: a second name of the flag.
        refused: for a flag of the original that has no meaning here, the sentence for whoever gives it. The script
            says it before it asks for required flags.
    """
    metadata = {"help": help, "check": check, "choices": choices, "alias": alias, "refused": refused}
    return dataclasses.field(default=default, metadata=metadata)
