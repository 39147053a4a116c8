"""The options of a launcher of workers. Every field but the command is a flag of launch.py."""

import dataclasses

from official_bert.options.fields import NOT_NEGATIVE, PROCESSES, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    num_processes: int = option(check=PROCESSES, help="The number of workers.")
    max_restarts: int = option(
        3,
        check=NOT_NEGATIVE,
        help="The number of times that all workers are started again after one of them has failed. The training then "
        "goes on from its last checkpoint.",
    )
    pin_cpus: bool = option(
        True,
        help="Give each worker an equal share of the CPUs for itself, if there are as many CPUs as workers.",
    )
    command: tuple[str, ...] = option(
        (), after_dashes=True, help="The script that every worker runs, and its flags."
    )
