"""The option of the type that a model computes in."""

import dataclasses

from official_bert.options.fields import option

FLOAT32, BFLOAT16, FLOAT16 = "float32", "bfloat16", "float16"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrecisionOptions:
    """A flag that the trainers share."""

    dtype: str = option(
        FLOAT32,
        choices=(FLOAT32, BFLOAT16, FLOAT16),
        help="The type of the matrix products in training, evaluation and prediction, and of the activations between "
        "them; the rest is float32, the weights and the checkpoints included. bfloat16 is for TPUs, newer GPUs and "
        "CPUs with AMX or AVX512_BF16, float16, which scales the loss, for GPUs.",
    )
