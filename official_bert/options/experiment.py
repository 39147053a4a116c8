"""The options of an experiment. Every field but the name is a flag of run_experiment.py."""

import dataclasses

from official_bert.options.fields import PROCESSES, Check, option

UTILISATION: Check = (lambda share: 0.0 < share <= 1.0, "must be above 0 and at most 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentOptions:
    name: str = option(
        "",
        is_first_word=True,
        help="The experiment, before all flags: a table or a figure of the paper, such as table5, or a .toml file of "
        "your own.",
    )
    scale: str = option(
        "tiny",
        help="The sizes of models and data, a name in scales.toml: smoke, tiny, small or paper.",
    )
    data_dir: str = option("data", help="The folder of the corpus and of the tasks' data.")
    output_dir: str = option(
        "experiments_output",
        help="The folder for tables, pictures and all runs. Experiments share the runs that they have in common.",
    )
    encoder: list[str] | None = option(
        None,
        help="The folder of the pre-trained model for experiments that only fine-tune, or several, by name: "
        "base=FOLDER,large=FOLDER. A folder without a name is base.",
    )
    seeds: int | None = option(
        None,
        check=PROCESSES,
        help="The number of fine-tunings of each cell. Without this flag it is that of the scale.",
    )
    num_parallel: int = option(
        1,
        check=PROCESSES,
        help="The number of runs at the same time, among which the CPUs are divided.",
    )
    training_flags: list[str] | None = option(
        None,
        help="Further flags of all training scripts, for the devices for instance, without dashes: "
        "distribution_strategy=mirrored,dtype=bfloat16. With other flags all runs are made anew.",
    )
    dry_run: bool = option(False, help="Print the commands that are still to run, and run none.")
    report: bool = option(False, help="Make the table and the picture of the finished runs, and run nothing.")
    estimate: bool = option(
        False, help="Print what the experiment costs on a TPU v4-32 and on eight H100, by calculation."
    )
    utilisation: float = option(
        0.4,
        check=UTILISATION,
        help="With --estimate: the share of the peak that the machines reach.",
    )
    experiments_dir: str | None = option(
        None,
        help="The folder of the declarations. Without this flag it is `experiments` in the checkout.",
    )

    @property
    def after_a_stop(self) -> str:
        """What a user is told whose run was interrupted."""
        return "the same command goes on where it was"
