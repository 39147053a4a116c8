"""The options of an update: how a batch becomes a gradient, and a gradient an update."""

import dataclasses

from official_bert.options.fields import SIZE, option

ADAMW, LAMB = "adamw", "lamb"
GLOBAL, PER_REPLICA = "global", "per_replica"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizationOptions:
    """Flags that the trainers share."""

    optimizer_type: str = option(
        ADAMW,
        choices=(ADAMW, LAMB),
        help="The optimizer: adamw is the original's; lamb (You et al., 2020) scales the update of each weight matrix "
        "to its norm, which large batches need.",
    )
    adam_bias_correction: bool = option(
        False,
        help="Correct the bias of Adam's moments, as Adam's authors do and the original does not. It makes fine-tuning "
        "on few examples fail less often. lamb always corrects it.",
    )
    num_accumulation_steps: int = option(
        1,
        check=SIZE,
        help="The number of parts in which each replica computes its share of --train_batch_size, one after the other, "
        "before the update. More parts need less memory; the numbers stay those of the whole batch.",
    )
    gradient_clipping: str = option(
        GLOBAL,
        choices=(GLOBAL, PER_REPLICA),
        help="The gradient whose norm is clipped to 1: global is that of the whole batch; per_replica is that of each "
        "replica before their mean, as on the original's TPU.",
    )
    recompute_layers: bool = option(
        False,
        help="Compute each encoder layer again in the backward pass instead of keeping what is inside it, which takes "
        "about a third more time and much less memory for long sequences.",
    )
