#!/usr/bin/env python3
"""Runs the steps of several experiments in one pool, so that a machine for minutes is always busy.

In: the names of experiments, and the flags of official-bert run_experiment. Out: the folders of its
steps. Afterwards `official-bert run_experiment NAME --only=table` with the same flags writes the
table of each experiment.

Run one after the other, each experiment ends with a few long steps that leave most of the machine
idle. Here the steps of all experiments are one plan. The pre-trainings come first, because others
wait for them, and the features with a BiLSTM last, because they take longest. With --order=seed all
steps of the first seed come before those of the second one, so that an interrupted run has complete
rows. With --only_seeds=4,5 a run adds seeds to results that exist. Finished steps do not run again.

    python benchmarks/experiment_pool.py table5 table8 --scale=desk_recipe --num_parallel=16
    python benchmarks/experiment_pool.py table1 table7 --model=minilm --seeds=5 --order=seed -- --dtype=auto
"""

import argparse
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from absl import logging

from official_bert.cli.flags import answer_for_input
from official_bert.extensions.experiments.command import read_encoders, read_training_flags
from official_bert.extensions.experiments.declarations import (
    find_scale,
    read_catalogue,
    read_experiment,
)
from official_bert.extensions.experiments.execution import check_data, execute
from official_bert.extensions.experiments.plan import make_plan
from official_bert.extensions.experiments.steps import Layout, Step, order_steps
from official_bert.io.errors import InputError
from official_bert.io.folder_lock import locked

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLES = ROOT / "official_bert/extensions/experiments/tables"
FIRST_KINDS = ("vocabulary", "records", "pretraining")
SLOW_FLAG = "feature_layers"


def stage_rank(step: Step) -> int:
    """Returns 0 for steps that many others need, 2 for the slowest ones, and 1 for the rest."""
    if step.kind in FIRST_KINDS:
        return 0
    return 2 if step.flag(SLOW_FLAG) is not None else 1


def seed_rank(step: Step) -> int:
    """Returns the seed of a step, or the largest one of the steps before it; 0 without any."""
    return step.seed or max((seed_rank(each) for each in step.inputs()), default=0)


def sort_steps(steps: list[Step], order: str) -> list[Step]:
    """Returns steps in the order in which they start, each after those that it needs.

    Args:
        steps: the steps of a plan.
        order: "stage" or "seed".
    """
    rank = seed_rank if order == "seed" else stage_rank
    return order_steps(sorted(steps, key=rank))


def with_seeds(steps: list[Step], seeds: list[int]) -> list[Step]:
    """Returns the steps of some seeds, and all that these need; without seeds, all steps."""
    return order_steps(step for step in steps if not seeds or seed_rank(step) in seeds)


def parse_seeds(text: str) -> list[int]:
    numbers = text.split(",")
    if not all(number.isdecimal() for number in numbers):
        raise argparse.ArgumentTypeError(f"{text}: give numbers with commas between them")
    return [int(number) for number in numbers]


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="+", help="names such as table5")
    parser.add_argument("--scale", default="desk")
    parser.add_argument("--model", default="", help="folder of the model that is given")
    parser.add_argument("--data_dir", default="data")
    parser.add_argument("--output_dir", default="experiments_output")
    parser.add_argument("--seeds", type=int, help="fine-tunings of each cell, if not the scale's")
    parser.add_argument(
        "--only_seeds", type=parse_seeds, default=[], help="such as 4,5: no steps of other seeds"
    )
    parser.add_argument("--num_parallel", type=int, default=1, help="steps at the same time")
    parser.add_argument("--order", choices=("stage", "seed"), default="stage")
    parser.add_argument("--dry_run", action="store_true", help="print the steps only")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    flags = parser.parse_args(words[:end])
    flags.training_flags = words[end + 1 :]
    return flags


def run(flags: argparse.Namespace) -> None:
    """Runs the steps.

    Raises:
        InputError: data are missing, or steps failed.
    """
    catalogue = read_catalogue(str(TABLES))
    scale = find_scale(flags.scale, catalogue)
    encoders = read_encoders([f"base={flags.model}"] if flags.model else [])
    training_flags = read_training_flags(flags.training_flags)
    steps = []
    for name in flags.experiments:
        experiment = read_experiment(name, catalogue)
        plan = make_plan(experiment, scale, catalogue, encoders, flags.seeds, training_flags)
        steps += plan.steps
    steps = sort_steps(with_seeds(steps, flags.only_seeds), flags.order)
    if flags.dry_run:
        for step in steps:
            print(step.name)
        return
    scale_dir = os.path.join(flags.output_dir, scale.name)
    layout = Layout(os.path.join(scale_dir, "steps"), flags.data_dir, encoders)
    check_data(steps, layout)
    with locked(scale_dir):
        failures = execute(steps, layout, flags.num_parallel)
    if failures:
        raise InputError("\n\n".join(failures))


def main():
    flags = parse_flags()
    logging.set_verbosity(logging.INFO)
    logging.use_absl_handler()
    answer_for_input(lambda: run, lambda: flags)


if __name__ == "__main__":
    main()
