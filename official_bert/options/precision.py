"""The option of the type that a model computes in."""

import dataclasses

from official_bert.options.fields import option

FLOAT32, BFLOAT16, FLOAT16, AUTO = "float32", "bfloat16", "float16", "auto"

EXPORT_DTYPES = FLOAT32, BFLOAT16
EXPORT_DTYPE = (
    "The type of the export's kernels and tables of embeddings, and of its matrix products. bfloat16 halves its size, "
    "and is faster on devices that multiply it: newer GPUs and CPUs with AMX or AVX512_BF16. Inputs and outputs stay "
    "the same."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrecisionOptions:
    """A flag that all scripts share which run a model from a checkpoint."""

    dtype: str = option(
        FLOAT32,
        choices=(FLOAT32, BFLOAT16, FLOAT16, AUTO),
        help="The type of the matrix products in training, evaluation and prediction, and of the activations between "
        "them; the rest is float32, the weights and the checkpoints included. bfloat16 is for TPUs, newer GPUs and "
        "CPUs with AMX or AVX512_BF16, float16, which scales the loss, for GPUs. auto takes bfloat16 on such devices "
        "and float32 on others.",
    )
