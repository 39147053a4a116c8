"""The flags of run_late_interaction, and those that export_saved_model gets for its models."""

import dataclasses
from typing import ClassVar

from official_bert.options.fields import MAX_LENGTH, POSITIVE, SIZE, Check, option
from official_bert.options.serving import HitOptions
from official_bert.options.table_columns import RelatedTextsOptions

LATE_INTERACTION = "late_interaction"  # the name of the family, and of its task
LOSSES = ("multiple_negatives_ranking", "margin_mse")
TOKEN_WIDTH, QUERY_LENGTH = 128, 32
NUM_CANDIDATES = 1000

_QUERY_LENGTHS: Check = (
    lambda n: n == 0 or 3 <= n <= MAX_LENGTH,
    f"must be 0, or at least 3, for [CLS], a token and [SEP], and at most {MAX_LENGTH}",
)
_READ_BY = "--task_name=late_interaction"
_TOKEN_WIDTH_HELP = "The number of components of the vector of a token."
_QUERY_LENGTH_HELP = (
    "The number of tokens of every query: a shorter one is filled up with [MASK], whose vectors "
    "count, and a longer one is truncated (Khattab and Zaharia, 2020). 0 leaves queries as they "
    "are."
)
_ATTENDS_HELP = "Whether the tokens of a query attend to the [MASK] behind them."
_SKIP_HELP = "Whether the vectors of punctuation in documents are left out."


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenSearchOptions(HitOptions):
    """The flags of predict for an index of the vectors of tokens."""

    token_index: str | None = option(
        None,
        basic=True,
        help="With a model of late interaction, encode the lines and write this file, an .npz file "
        "with the texts and the vectors of their tokens, in place of answers.",
    )
    token_search: str | None = option(
        None,
        basic=True,
        help="Answer each line with the texts of this file, which --token_index wrote, that have "
        "the largest MaxSim scores.",
    )
    token_bits: int | None = option(
        None,
        check=(lambda bits: bits in (32, 8, 4, 2), "must be 32, 8, 4 or 2"),
        only_with={"token_index": ()},
        help="With --token_index, the bits of a component: 32, the default; 8, in a quarter of the "
        "memory; 4 or 2, which say how a vector differs from the nearest of some centroids "
        "(Santhanam et al., 2022).",
    )
    num_candidates: int | None = option(
        None,
        check=SIZE,
        only_with={"token_search": ()},
        help="With --token_search, the number of texts with the nearest mean vectors, which alone "
        f"are scored; {NUM_CANDIDATES} without this flag.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LateInteractionServing:
    """The flags of export_saved_model that say how a model makes the vectors of tokens."""

    token_width: int | None = option(
        fallback=TOKEN_WIDTH,
        check=SIZE,
        fixed_by_training=True,
        read_by=_READ_BY,
        help=f"With late_interaction: {_TOKEN_WIDTH_HELP}",
    )
    query_length: int | None = option(
        fallback=QUERY_LENGTH,
        check=_QUERY_LENGTHS,
        fixed_by_training=True,
        read_by=_READ_BY,
        help=f"With late_interaction: {_QUERY_LENGTH_HELP}",
    )
    attend_to_expansion: bool | None = option(
        fallback=False,
        fixed_by_training=True,
        read_by="",
        help=f"With late_interaction: {_ATTENDS_HELP}",
    )
    skip_punctuation: bool | None = option(
        fallback=True,
        fixed_by_training=True,
        read_by="",
        help=f"With late_interaction: {_SKIP_HELP}",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LateInteractionOptions(RelatedTextsOptions):
    script: ClassVar[str] = "run_late_interaction"
    task_name: ClassVar[str] = LATE_INTERACTION

    loss: str = option(
        LOSSES[0],
        basic=True,
        choices=LOSSES,
        fixed_by_training=True,
        help="What the training minimises, with MaxSim scores. multiple_negatives_ranking: for "
        "each query, find its document among those of the whole batch, and among hard negatives if "
        "the examples have some. margin_mse: the label of an example is by how much a teacher "
        "scores its document above its negative.",
    )
    scale: float = option(
        1.0,
        check=POSITIVE,
        changes_training=True,
        only_with={"loss": ("multiple_negatives_ranking",)},
        help="What multiple_negatives_ranking multiplies scores by, the inverse of a temperature.",
    )
    token_width: int | None = option(
        fallback=None,
        check=SIZE,
        fixed_by_training=True,
        help=f"{_TOKEN_WIDTH_HELP} Without this flag the folder of the model decides; else it is "
        f"{TOKEN_WIDTH}.",
    )
    query_length: int | None = option(
        fallback=None,
        check=_QUERY_LENGTHS,
        fixed_by_training=True,
        help=f"{_QUERY_LENGTH_HELP} Without this flag the folder of the model decides; else it is "
        f"{QUERY_LENGTH}.",
    )
    attend_to_expansion: bool | None = option(
        fallback=None, fixed_by_training=True, help=_ATTENDS_HELP
    )
    skip_punctuation: bool | None = option(fallback=None, fixed_by_training=True, help=_SKIP_HELP)
    query_marker: str | None = option(
        fallback=None,
        fixed_by_training=True,
        help="A word of the vocabulary, such as [unused0], which is put behind the [CLS] of each "
        "query; ColBERT calls it [Q]. Without this flag the folder of the model decides; else it "
        "is none.",
    )
    document_marker: str | None = option(
        fallback=None,
        fixed_by_training=True,
        help="The same for documents, such as [unused1]; ColBERT calls it [D].",
    )
