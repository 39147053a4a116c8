"""The flags of run_experiment."""

import dataclasses

from official_bert.options.fields import PROCESSES, option

COMMANDS, TABLE = "commands", "table"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentOptions:
    name: str = option(
        "",
        is_first_word=True,
        help="The experiment, before all flags: a table or figure of the paper, such as table5, or "
        "your .toml file.",
    )
    scale: str = option(
        "desk",
        help="The sizes of models and data, a name in scales.toml: smoke, desk, desk_recipe, "
        "two_cores, small or paper.",
    )
    data_dir: str = option("data", help="The folder of the corpus and of the tasks' data.")
    output_dir: str = option(
        "experiments_output",
        help="The folder for tables and all runs. Experiments share the runs that they have in "
        "common.",
    )
    model: list[str] | None = option(
        None,
        help="The folder of the pre-trained model for experiments that only fine-tune, or several, "
        "by name: base=FOLDER,large=FOLDER. A folder without a name is base. Members of an "
        "ensemble take turns with models of numbered names: large=FOLDER,large2=FOLDER.",
    )
    seeds: int | None = option(
        None,
        check=PROCESSES,
        help="The number of fine-tunings of each cell. Without this flag it is that of the scale.",
    )
    num_parallel: int = option(
        1,
        check=PROCESSES,
        help="The number of steps that run at the same time. They share the memory of the GPUs, "
        "and each has its own CPUs. Small models use a small part of a GPU, so several steps take "
        "hardly longer than one.",
    )
    only: str | None = option(
        None,
        choices=(COMMANDS, TABLE),
        help="Run nothing: commands prints the commands that are still to run, table makes that of "
        "the finished runs.",
    )
    training_flags: tuple[str, ...] = option(
        (),
        after_dashes=True,
        help="Further flags of all training scripts, for the devices for instance: "
        "--distribution_strategy=mirrored --dtype=bfloat16. With other flags all runs are made "
        "anew.",
    )

    @property
    def resume_hint(self) -> str:
        """What a user is told whose run was interrupted."""
        return "the same command resumes where it stopped"
