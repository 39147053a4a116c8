"""Estimates what an experiment costs: floating-point operations of its steps, and hours on two machines.

In: a plan. Out: text. Everything is on paper: the operations are those of modeling/flops.py, which counts matrix
products only, and a machine makes a share of the operations of its data sheet, the utilisation:

    hours = operations / (chips x peak operations a second of a chip x utilisation) / 3600

Not counted are records, vocabularies, the input, evaluations between checkpoints, BiLSTMs and the heads of fine-tuning,
nor the start of each process, which is most of a short run.
"""

from __future__ import annotations

import dataclasses

from official_bert.config import BertConfig
from official_bert.jobs.experiments.plan import Plan
from official_bert.jobs.experiments.steps import Step, Work
from official_bert.modeling.flops import forward_flops, training_flops

UTILISATION = 0.4


@dataclasses.dataclass(frozen=True)
class Machine:
    """Chips with their dense bfloat16 operations a second, by the data sheet."""

    name: str
    num_chips: int
    peak_flops: float

    def hours(self, flops: float, utilisation: float) -> float:
        """Returns the hours for some operations; the formula is that of the module."""
        return flops / (self.num_chips * self.peak_flops * utilisation) / 3600


MACHINES = (
    Machine("TPU v4-32", 16, 275e12),
    Machine("8 x H100 SXM", 8, 989e12),
)


def flops_of(work: Work) -> float:
    """Returns the operations of a step."""
    config = BertConfig.from_dict(dict(work.config))
    # As floats: the operations of one sequence times their number, which may be 10 to the 9.
    trained = training_flops(config, 1, work.length, work.num_predictions, work.num_frozen_layers)
    evaluated = forward_flops(config, 1, work.length, work.num_predictions)
    return float(trained) * work.num_trained + float(evaluated) * work.num_evaluated


def estimate(plan: Plan, utilisation: float = UTILISATION) -> str:
    """Returns a table with a line for each kind of steps, and the total."""
    steps = [step for step in plan.steps if step.work]
    kinds = list(dict.fromkeys(step.kind for step in steps))
    lines = [
        f"{plan.experiment.title}, scale {plan.scale.name}: an estimate on paper, at {utilisation:.0%} of the peak",
        "",
        "| steps | number | operations | "
        + " | ".join(f"hours, {machine.name}" for machine in MACHINES)
        + " |",
        "|---|--:|--:|" + "--:|" * len(MACHINES),
    ]
    for kind in kinds:
        lines.append(_line(kind, [step for step in steps if step.kind == kind], utilisation))
    lines.append(_line("total", steps, utilisation))
    lines += ["", *(f"Left out: {sentence}." for sentence in plan.left_out)]
    return "\n".join(lines).rstrip()


def _line(name: str, steps: list[Step], utilisation: float) -> str:
    flops = sum(flops_of(step.work) for step in steps)
    hours = (f"{machine.hours(flops, utilisation):,.1f}" for machine in MACHINES)
    return f"| {name} | {len(steps)} | {flops:.2e} | " + " | ".join(hours) + " |"
