#!/usr/bin/env python3
"""Counts what the paper's experiments cost, without running them: two tables of a report.

In: the experiments and the scales of the package, the FLOP count of the project, the sizes of the
data sets below, and the utilizations as flags. Out: for each experiment at the scale `paper` its
trainings, their operations, and the hours of two machines; the numbers of the steps at `desk`.

    hours = operations / (chips * peak of a chip * utilization) / 3600

Counted are the updates of pre-trainings and of fine-tunings, with padding. A search counts each of
its grid. A feature-based training counts one forward pass, because the features are cached. Not
counted are records, evaluations, the few inputs that are longer than the maximum and become two,
and the BiLSTM on cached features.

    python benchmarks/experiment_costs.py
"""

import argparse
import math
import pathlib
import sys
from collections import Counter
from collections.abc import Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from benchmarks.experiment_pool import TABLES
from official_bert import BertConfig, catalog
from official_bert.extensions.experiments.declarations import (
    find_scale,
    read_catalogue,
    read_experiment,
)
from official_bert.extensions.experiments.plan import make_plan
from official_bert.extensions.experiments.planner import list_updates
from official_bert.extensions.experiments.steps import Step, order_steps
from official_bert.fine_tuning.search import read_grid
from official_bert.options.fields import flag_fields, without_flag
from official_bert.training.flops import forward_flops, peak_by_name, training_flops

EXPERIMENTS = (*(f"table{number}" for number in range(1, 9)), "figure5")
# An ensemble of Large starts from seven pre-trainings.
ENCODERS = ("base", "large", *(f"large{number}" for number in range(2, 8)))
# The training examples of the public data sets. Those of TriviaQA are the questions of its
# Wikipedia part, of which the converter leaves out those without an answer in the text.
TRAINING_EXAMPLES = {
    "MNLI": 392_702,
    "QQP": 363_846,
    "QNLI": 104_743,
    "SST-2": 67_349,
    "CoLA": 8_551,
    "STS-B": 5_749,
    "MRPC": 3_668,
    "RTE": 2_490,
    "SQuAD 1.1": 87_599,
    "SQuAD 2.0": 130_319,
    "TriviaQA": 61_888,
    "SWAG": 73_546,
    "CoNLL-2003": 14_041,
}
NUM_SEQUENCES = {"SWAG": 4}
# Dense peaks in bfloat16 by the data sheets.
MACHINES = {"16 TPU v4": 16 * 275e12, "8 H100 SXM": 8 * peak_by_name("H100", "bfloat16")}
UTILIZATIONS = (0.245, 0.4)  # measured with our step on an H100; assumed, measured by nobody


def flag_value(step: Step, name: str):
    """Returns the value of a flag of a step, or that of its command without the flag."""
    fields = {field.name: field for field in flag_fields(catalog.options_class(step.script))}
    return step.flag(name, without_flag(fields[name]))


def count_pretraining(step: Step) -> int:
    """Returns the operations of one phase of a pre-training."""
    return training_flops(
        BertConfig.from_dict(dict(step.config)),
        len(list_updates(step)) * flag_value(step, "train_batch_size"),
        flag_value(step, "max_seq_length"),
        flag_value(step, "max_predictions_per_seq"),
    )


def find_encoder(step: Step) -> BertConfig:
    """Returns the configuration of the model that a fine-tuning starts from."""
    source = step.flag("model").root
    if isinstance(source, str):
        return BertConfig.from_size(source.rstrip("0123456789"), vocab_size=30522)
    return BertConfig.from_dict(dict(source.config)) if source.config else find_encoder(source)


def count_fine_tuning(step: Step) -> int:
    """Returns the operations of a fine-tuning, all those of its search together."""
    task = next(name for name in TRAINING_EXAMPLES if step.label.startswith(f"{name} "))
    sequences = TRAINING_EXAMPLES[task] * NUM_SEQUENCES.get(task, 1)
    shape = find_encoder(step), sequences, flag_value(step, "max_seq_length")
    if step.flag("feature_layers") is not None:
        return forward_flops(*shape)
    if search := step.flag("search"):
        grid = read_grid(search)
        trials = math.prod(len(grid[name]) for name in ("learning_rate", "train_batch_size"))
        epochs = trials * sum(grid["num_train_epochs"]) * grid["restarts"][0]
    else:
        epochs = flag_value(step, "num_train_epochs")
    return round(epochs * training_flops(*shape))


def list_steps(scale_name: str, *names: str) -> list[Step]:
    """Returns the steps of experiments at a scale, those that they share once."""
    catalogue = read_catalogue(str(TABLES))
    scale = find_scale(scale_name, catalogue)
    plans = [
        make_plan(read_experiment(name, catalogue), scale, catalogue, ENCODERS) for name in names
    ]
    return order_steps(step for plan in plans for step in plan.steps)


def count(name: str) -> tuple[int, int, int, int]:
    """Returns the pre-trainings and the fine-tunings of an experiment at the scale `paper`, and the
    operations of each kind.
    """
    steps = list_steps("paper", name)
    phases = [step for step in steps if step.kind == "pretraining"]
    fine_tunings = [step for step in steps if step.kind == "fine-tuning"]
    return (
        sum(step.continued is None for step in phases),
        len(fine_tunings),
        sum(map(count_pretraining, phases)),
        sum(map(count_fine_tuning, fine_tunings)),
    )


def print_costs(utilizations: Sequence[float]):
    """Prints the table of the scale `paper`, with the hours of the highest utilization first."""
    machines = " | ".join(f"hours, {machine}" for machine in MACHINES)
    print(
        "| scale `paper` | pre-trainings | fine-tunings | operations of pre-training | "
        f"of fine-tuning | {machines} |"
    )
    print("|---" + "|--:" * (4 + len(MACHINES)) + "|")
    for name in EXPERIMENTS:
        pretrainings, fine_tunings, *operations = count(name)
        hours = [
            " to ".join(
                f"{sum(operations) / (peak * utilization) / 3600:.2g}"
                for utilization in sorted(utilizations, reverse=True)
            )
            for peak in MACHINES.values()
        ]
        cells = [f"{each:.2e}" if each else "0" for each in operations] + hours
        print(f"| `{name}` | {pretrainings} | {fine_tunings} | {' | '.join(cells)} |")


def print_steps():
    """Prints the table of the steps at the scale `desk`."""
    tables = Counter(step.kind for step in list_steps("desk", "table5", "table6", "table8"))
    all_steps = list_steps("desk", "table5", "table6", "table8", "figure5")
    added = Counter(step.kind for step in all_steps) - tables
    print("| steps at `desk` | tables 5, 6 and 8 | figure 5 adds |\n|---|--:|--:|")
    for kind, number in tables.items():
        print(f"| {kind} | {number} | {added[kind]} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--utilizations", nargs="+", type=float, default=UTILIZATIONS)
    flags = parser.parse_args()
    print_costs(flags.utilizations)
    print()
    print_steps()


if __name__ == "__main__":
    main()
