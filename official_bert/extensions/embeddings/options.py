"""The flags of run_embeddings, and those that export_saved_model gets for embedding models."""

import dataclasses
from typing import ClassVar

from official_bert import catalog
from official_bert.options.fields import MIN_SEQ_LENGTH, POSITIVE, SIZE, option
from official_bert.options.fine_tuning import WINDOW_POOLINGS
from official_bert.options.serving import POOLINGS
from official_bert.options.table_columns import RelatedTextsOptions

EMBEDDING = "embedding"  # the name of the family, and of its task
LOSSES = (
    "multiple_negatives_ranking",
    "gist",
    "simcse",
    "cosent",
    "angle",
    "cosine_similarity",
    "contrastive",
    "online_contrastive",
    "triplet",
    "mse",
    "margin_mse",
)
EVALUATIONS = (
    "sts",
    "pairs",
    "triplets",
    "retrieval",
    *(name for further in catalog.hooks("embedding_evaluations") for name in further()),
)


def _are_widths(texts: list[str]) -> bool:
    """Returns whether texts are numbers of components, each once."""
    if not all(text.isascii() and text.isdecimal() and len(text) < 8 for text in texts):
        return False
    widths = [int(text) for text in texts]
    return all(map(SIZE[0], widths)) and len(set(widths)) == len(widths)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingServing:
    """The flags of export_saved_model that say how a model makes embeddings."""

    pooling: str | None = option(
        fallback="mean",
        choices=tuple(dict.fromkeys((*POOLINGS, *WINDOW_POOLINGS))),
        fixed_by_training=True,
        read_by="--task_name=embedding or --long_texts=windows",
        help="With embedding, how the vectors of the tokens become one: their mean, the vector of "
        "[CLS], the largest value of each coordinate, or with mean_sqrt_len their sum divided by "
        "the square root of their number, with weighted_mean the mean in which the n-th token "
        "counts n times, or with last the vector of the last token. With a "
        "classifier of --long_texts=windows, its --pooling.",
    )
    normalize: bool | None = option(
        fallback=True,
        fixed_by_training=True,
        read_by="",
        help="With embedding, divide a vector by its norm, so that a product of two is their "
        "cosine.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingOptions(RelatedTextsOptions):
    script: ClassVar[str] = "run_embeddings"
    task_name: ClassVar[str] = "embedding"

    loss: str = option(
        LOSSES[0],
        basic=True,
        choices=LOSSES,
        fixed_by_training=True,
        help="What the training minimises. multiple_negatives_ranking: for each anchor, find its "
        "positive among those of the whole batch, and among hard negatives if the examples have "
        "some. gist: the same, without the negatives that --teacher takes for positives. simcse: "
        "the same with one sentence under two dropout masks. cosent: order pairs by their scores. "
        "angle: cosent with angles of complex numbers. cosine_similarity: the cosine of a pair is "
        "its score. contrastive: pairs of label 1 are near, those of label 0 apart. "
        "online_contrastive: the same for the hard pairs of a batch. triplet: the positive is "
        "nearer than the negative. margin_mse: the positive is better than the negative by as much "
        "as a reranker says. mse: the vectors of --teacher.",
    )
    matryoshka: list[str] | None = option(
        None,
        check=(_are_widths, "must be different positive whole numbers, separated by commas"),
        fixed_by_training=True,
        help="The numbers of first components of the vectors to which the loss is applied, "
        "separated by commas, such as 768,384,128,64. Vectors can then be cut to these (Kusupati "
        "et al., 2022).",
    )
    scale: float = option(
        20.0,
        check=POSITIVE,
        changes_training=True,
        only_with={"loss": ("multiple_negatives_ranking", "gist", "simcse", "cosent", "angle")},
        help="What multiple_negatives_ranking, gist, simcse, cosent and angle multiply cosines by, "
        "the inverse of a temperature. The authors of gist use 100.",
    )
    symmetric: bool = option(
        False,
        changes_training=True,
        only_with={"loss": ("multiple_negatives_ranking", "simcse")},
        help="With multiple_negatives_ranking, also find the anchor of each positive among those "
        "of the batch.",
    )
    triplet_margin: float = option(
        5.0,
        check=POSITIVE,
        changes_training=True,
        only_with={"loss": ("triplet",)},
        help="With triplet, by how much the negative must be farther than the positive, as a "
        "Euclidean distance.",
    )
    contrastive_margin: float = option(
        0.5,
        check=POSITIVE,
        changes_training=True,
        only_with={"loss": ("contrastive", "online_contrastive")},
        help="With contrastive and online_contrastive, the distance, 1 minus the cosine, at which "
        "a pair of label 0 is far enough apart.",
    )
    teacher: str | None = option(
        None,
        changes_training=True,
        names_model=True,
        help="With mse, the folder or the name of the model whose vectors are learned, as of "
        "SentenceEncoder. With gist, that whose vectors tell which negatives are false. With "
        "margin_mse, that of a reranker; without it, the labels of the file are the scores of one.",
    )
    query_prompt: str | None = option(
        None,
        changes_training=True,
        help="A text to put before each anchor, such as 'query: '. Without this flag, and the "
        "next, the folder of the model decides.",
    )
    document_prompt: str | None = option(
        None,
        changes_training=True,
        help="A text to put before all other texts, such as 'passage: '.",
    )
    include_prompt: bool | None = option(
        fallback=None,
        fixed_by_training=True,
        help="Whether the tokens of a prompt count in the pooling; they do without this flag and "
        "without a model's folder that says otherwise.",
    )
    max_query_seq_length: int | None = option(
        fallback=None,
        check=MIN_SEQ_LENGTH,
        fixed_by_training=True,
        help="The maximum number of tokens of an anchor; other texts have --max_seq_length. In "
        "training, anchors are then padded among themselves.",
    )
    pooling: str | None = option(
        fallback=None,
        choices=POOLINGS,
        fixed_by_training=True,
        help="How the vectors of the tokens become one: their mean, that of [CLS], the maximum of "
        "each component, or mean_sqrt_len, their sum divided by the square root of their number, "
        "weighted_mean, in which the n-th token counts n times, or last, that of the last token. "
        "Without this flag, and the next two, the folder of the model decides if it is one of "
        "vectors; else the mean.",
    )
    projection: int | None = option(
        fallback=None,
        check=SIZE,
        fixed_by_training=True,
        help="The width of a linear layer behind the pooling; none without this flag.",
    )
    normalize: bool | None = option(
        fallback=None,
        fixed_by_training=True,
        help="Divide the vectors by their norms, so that a product of two is their cosine.",
    )
    eval_task: str | None = option(
        None,
        choices=EVALUATIONS,
        only_with={"do_eval": (), "eval_every_steps": (), "eval_every_epochs": ()},
        help="What --do_eval measures: sts, how cosines follow the scores of pairs; pairs, how "
        "they tell pairs of label 1 from those of label 0; triplets; retrieval of the positives "
        "among all texts of the file, or, if pairs have a label, among those of the query; "
        "clustering by the label; few_shot, a classifier of the label that sees 8 and 16 examples "
        "of each, drawn from half of the file. Without this flag the columns decide.",
    )
    vectors: str | None = option(
        None,
        names_model=True,
        help="Evaluate an export, or the vectors of another system, in place of a model. The "
        "vectors are a .npy file with those of the different texts of --dev_file in their order, "
        "as in test_texts.jsonl of --do_predict.",
    )


def check_paths(options: EmbeddingOptions) -> None:
    """Check the files of a training, or with --vectors those of an evaluation.

    Args:
        options: the flags of the command.

    Raises:
        InputError: a file is missing or corrupt, or a flag contradicts the folder of the model.
    """
    # The import is here, because --help needs no check.
    from official_bert.commands import first_checks

    if options.vectors is None:
        first_checks.check_fine_tuning(options)
    elif options.dev_file:
        first_checks.check_tables(options.dev_file, "dev_file")
        is_array = options.vectors.lower().endswith(".npy")
        check = first_checks.check_file if is_array else first_checks.check_model
        check(options.vectors)
