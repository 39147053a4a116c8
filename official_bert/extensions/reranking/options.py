"""The flags of run_reranker, and the one that export_saved_model gets for rerankers."""

import dataclasses
from typing import ClassVar

from official_bert.options.fields import POSITIVE, between, option
from official_bert.options.fine_tuning import DataFilesOptions
from official_bert.options.table_columns import TextTables

RERANKING = "reranking"  # the name of the family, and of its task
SIGMOID, IDENTITY = "sigmoid", "identity"
ACTIVATIONS = (SIGMOID, IDENTITY)
LOSSES = (
    "binary_cross_entropy",
    "multiple_negatives_ranking",
    "margin_mse",
    "mse",
    "rank_net",
    "list_net",
    "lambda_loss",
)
METRICS = ("ndcg_at_10", "mrr_at_10", "map")
_LIST_LOSSES = (
    "multiple_negatives_ranking",
    "margin_mse",
    "rank_net",
    "list_net",
    "lambda_loss",
)
_SCORE_LOSSES = ("margin_mse", "mse", "list_net")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RerankerServing:
    """The flag of export_saved_model that says how a reranker computes scores."""

    activation: str | None = option(
        fallback=None,
        choices=ACTIVATIONS,
        read_by="--task_name=reranking",
        help="With reranking, what is applied to the logit of a query and a document: sigmoid for "
        "scores between 0 and 1, identity for none. The default is that of the training.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RerankerOptions(DataFilesOptions, TextTables):
    script: ClassVar[str] = "run_reranker"
    task_name: ClassVar[str] = RERANKING

    data_dir: str | None = option(
        None,
        basic=True,
        help="The folder with the files train, dev and test, each a .tsv, .csv, .jsonl or "
        ".parquet.",
    )
    loss: str = option(
        LOSSES[0],
        basic=True,
        choices=LOSSES,
        fixed_by_training=True,
        help="What the training minimises. binary_cross_entropy: the labels 0 and 1 of pairs. "
        "multiple_negatives_ranking: find the right document of a query among others of the batch. "
        "margin_mse, mse: the differences of a teacher's scores, or the scores. rank_net, "
        "list_net, lambda_loss: the order of all documents of a query.",
    )
    list_size: int = option(
        16,
        check=between(2, 1024),
        changes_training=True,
        only_with={"loss": _LIST_LOSSES},
        help="The largest number of documents in an example. A query with more documents becomes "
        "several examples, each with its best documents and a part of the others; with "
        "multiple_negatives_ranking, only its first negatives are read.",
    )
    num_negatives: int = option(
        4,
        check=between(1, 1024),
        changes_training=True,
        only_with={"loss": ("multiple_negatives_ranking",)},
        help="The number of documents of other queries of the batch that a query is compared "
        "with, besides its own negatives.",
    )
    scale: float = option(
        10.0,
        check=POSITIVE,
        changes_training=True,
        only_with={"loss": ("multiple_negatives_ranking",)},
        help="What multiple_negatives_ranking multiplies the scores by, which are between 0 and 1.",
    )
    positive_weight: float = option(
        1.0,
        check=POSITIVE,
        changes_training=True,
        only_with={"loss": ("binary_cross_entropy",)},
        help="The weight of pairs with label 1 in binary_cross_entropy, such as the number of "
        "negatives for each positive.",
    )
    teacher: str | None = option(
        None,
        changes_training=True,
        names_model=True,
        only_with={"loss": _SCORE_LOSSES},
        help="The folder or the name of a reranker whose scores are the labels. Without it, the "
        "labels of the file are the scores of a teacher.",
    )
    activation: str | None = option(
        fallback=None,
        choices=ACTIVATIONS,
        help="What is applied to the logit of a query and a document when the model is used: "
        "sigmoid for scores between 0 and 1, identity for none. The order is the same. The default "
        "is that of the model's folder, or else identity after margin_mse and mse and sigmoid "
        "after other losses.",
    )
    main_metric: str = option(
        METRICS[0],
        choices=METRICS,
        only_with={"do_eval": (), "eval_every_steps": (), "eval_every_epochs": ()},
        help="The metric by which checkpoints and runs are compared.",
    )
