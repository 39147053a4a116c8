"""The options of the command that starts other commands."""

import dataclasses

from official_bert.options.fields import NOT_NEGATIVE, PROCESSES, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """The flags of launch."""

    num_workers: int = option(check=PROCESSES, help="The number of workers.")
    max_restarts: int = option(
        3,
        check=NOT_NEGATIVE,
        help="The number of times that all workers restart after one of them has failed. The "
        "training then resumes from its last checkpoint.",
    )
    command: tuple[str, ...] = option(
        (),
        after_dashes=True,
        help="The script, or the command of official-bert, that every worker runs, and its flags.",
    )
