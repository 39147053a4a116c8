"""The grammar of --eval_every: the time between two evaluations of a training."""

import re
from typing import NamedTuple

from official_bert.options.fields import POSITIVE

_EVERY = re.compile(r"(?P<number>\d+|(?P<passes>\d*\.?\d+)epochs)(,patience=(?P<patience>\d+))?")


class Every(NamedTuple):
    """What --eval_every says: the updates between two evaluations or the passes, and the
    patience; None is not said.
    """

    steps: int | None
    passes: float | None
    patience: int | None


def every(text: str) -> Every | None:
    """Reads --eval_every; None for what is not its form."""
    found = _EVERY.fullmatch(text)
    if not found:
        return None
    passes, patience = found["passes"], found["patience"]
    values = Every(
        None if passes else int(found["number"]),
        float(passes) if passes else None,
        int(patience) if patience else None,
    )
    return values if all(value is None or POSITIVE[0](value) for value in values) else None
