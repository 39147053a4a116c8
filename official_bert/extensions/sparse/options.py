"""The flags of run_sparse_embeddings, and those that export_saved_model gets for its models."""

import dataclasses
from typing import ClassVar

from official_bert.options.fields import NOT_NEGATIVE, POSITIVE, PROBABILITY, SIZE, option
from official_bert.options.table_columns import RelatedTextsOptions

SPARSE = "sparse_embedding"  # the name of the family, and of its task
LOSSES = ("multiple_negatives_ranking", "margin_mse")
ACTIVATIONS = ("relu", "log1p_relu")
# The encoders of queries: the model itself, or a weight for each word of the vocabulary.
MODEL, IDF, LOOKUP = QUERY_ENCODERS = ("model", "idf", "lookup")

_QUERY_ENCODER_HELP = (
    "How queries are encoded: by the model, as documents are; or without a model, by a weight for "
    "each of their words. The weights are the inverse document frequencies in the training set, "
    "which idf keeps and lookup trains."
)
_TERM_ACTIVATION_HELP = (
    "The weight of a word by its largest logit x: relu is log(1 + max(x, 0)), log1p_relu is "
    "log(1 + log(1 + max(x, 0)))."
)
_MAX_TERMS_HELP = (
    "The number of words of a text that are kept, those with the largest weights; all with a "
    "weight without this flag. Training does not read it."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparseServing:
    """The flags of export_saved_model that say how a model makes sparse embeddings."""

    query_encoder: str | None = option(
        fallback=MODEL,
        choices=QUERY_ENCODERS,
        fixed_by_training=True,
        read_by="--task_name=sparse_embedding",
        help=f"With sparse_embedding: {_QUERY_ENCODER_HELP}",
    )
    term_activation: str | None = option(
        fallback=ACTIVATIONS[0],
        choices=ACTIVATIONS,
        fixed_by_training=True,
        read_by="--task_name=sparse_embedding",
        help=f"With sparse_embedding: {_TERM_ACTIVATION_HELP}",
    )
    max_terms: int | None = option(
        fallback=None,
        check=SIZE,
        read_by="--task_name=sparse_embedding",
        help=f"With sparse_embedding: {_MAX_TERMS_HELP}",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparseOptions(RelatedTextsOptions):
    script: ClassVar[str] = "run_sparse_embeddings"
    task_name: ClassVar[str] = SPARSE

    loss: str = option(
        LOSSES[0],
        basic=True,
        choices=LOSSES,
        fixed_by_training=True,
        help="What the training minimises, with dot products of weights. "
        "multiple_negatives_ranking: for each query, find its document among those of the whole "
        "batch, and among hard negatives if the examples have some. margin_mse: the label of an "
        "example is by how much a teacher scores its document above its negative.",
    )
    scale: float = option(
        1.0,
        check=POSITIVE,
        changes_training=True,
        only_with={"loss": ("multiple_negatives_ranking",)},
        help="What multiple_negatives_ranking multiplies dot products by, the inverse of a "
        "temperature.",
    )
    query_flops: float = option(
        5e-5,
        check=NOT_NEGATIVE,
        changes_training=True,
        help="The weight of the loss that makes queries sparse: the sum over the vocabulary of the "
        "squared mean weight in a batch (FLOPS, Paria et al., 2020). A larger one leaves fewer "
        "words. It is not read for queries without a model.",
    )
    document_flops: float = option(
        3e-5,
        basic=True,
        check=NOT_NEGATIVE,
        changes_training=True,
        help="The same for documents.",
    )
    flops_warmup: float = option(
        1 / 3,
        check=PROBABILITY,
        changes_training=True,
        help="The share of the updates in which the weights of --query_flops and --document_flops "
        "rise from 0 with the square of the number of updates.",
    )
    query_encoder: str | None = option(
        fallback=None,
        choices=QUERY_ENCODERS,
        fixed_by_training=True,
        help=f"{_QUERY_ENCODER_HELP} Without this flag the folder of the model decides; else it is "
        "model.",
    )
    term_activation: str | None = option(
        fallback=None,
        choices=ACTIVATIONS,
        fixed_by_training=True,
        help=f"{_TERM_ACTIVATION_HELP} Without this flag the folder of the model decides; else it "
        "is relu.",
    )
    max_terms: int | None = option(fallback=None, check=SIZE, help=_MAX_TERMS_HELP)
