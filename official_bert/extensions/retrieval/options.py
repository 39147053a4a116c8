"""The flags of mine_hard_negatives, and those that predict gets for searches."""

import dataclasses
from typing import ClassVar

from official_bert.options.fields import NOT_NEGATIVE, SIZE, option
from official_bert.options.serving import HitOptions
from official_bert.options.table_columns import TextTables

VECTOR_TYPES = ("float32", "int8", "binary")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions(HitOptions):
    """The flags of predict for an index of texts."""

    index: str | None = option(
        None,
        basic=True,
        help="With an embedding model, write this file, an .npz file with the lines and their "
        "embeddings, in place of answers.",
    )
    search: str | None = option(
        None,
        basic=True,
        help="Answer each line with the nearest texts of this file, which --index wrote.",
    )
    vectors_file: str | None = option(
        None,
        basic=True,
        help="With an embedding model, write the embedding of each line into this .npy file, in "
        "bounded memory. After a kill, the same command resumes.",
    )
    query_prompt: str | None = option(
        None,
        only_with={"search": ()},
        help="With --search, a text to put before each line, in place of the model's prompt of "
        "queries.",
    )
    document_prompt: str | None = option(
        None,
        only_with={"index": (), "vectors_file": ()},
        help="With --index or --vectors_file, a text to put before each line, in place of the "
        "model's prompt of documents. The index records it.",
    )
    vector_type: str | None = option(
        None,
        choices=VECTOR_TYPES,
        only_with={"index": ()},
        help="With --index, how the vectors are stored: float32, the default; int8, in a quarter "
        "of the memory; or binary, their signs in a thirty-second, which find candidates that "
        "the query in float32 orders.",
    )
    width: int | None = option(
        None,
        check=SIZE,
        only_with={"index": ()},
        help="With --index, the number of first components of each vector that are stored, for "
        "models that were trained with --matryoshka.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MiningOptions(TextTables):
    resume_hint: ClassVar[str] = "the same command resumes after the finished lines"

    input_file: str = option(
        help="The pairs: TSV, CSV, JSON lines or Parquet files with names of columns, with commas "
        "between, or a glob."
    )
    model: str = option(
        help="The embedding model that finds the negatives: the --output_dir of run_embeddings, an "
        "export of it, a folder of sentence-transformers, or a name."
    )
    output_file: str = option(
        help="The file to write, with a JSON object for each pair: anchor, positive, and negative, "
        "a list of texts, the nearest to the anchor first."
    )
    corpus_file: str | None = option(
        None,
        basic=True,
        help="The texts to choose from: a file with one text a line, a table, or an .npz file of "
        "official-bert predict --index. Without this flag they are all positives.",
    )
    num_negatives: int = option(
        5,
        basic=True,
        check=SIZE,
        help="The most negatives of a pair; one without so many gets fewer, or none.",
    )
    top_k: int = option(
        50,
        basic=True,
        check=SIZE,
        help="How many of the texts nearest to an anchor may become its negatives.",
    )
    skip_top: int = option(
        0,
        basic=True,
        check=NOT_NEGATIVE,
        help="How many of the nearest are left out, which may be unmarked positives.",
    )
    margin: float | None = option(
        None,
        basic=True,
        check=(lambda margin: 0 <= margin <= 2, "must be between 0 and 2"),
        help="The cosine of a negative is at least this far below that of the positive.",
    )
    max_score: float | None = option(
        None,
        basic=True,
        check=(lambda score: -1 <= score <= 1, "must be between -1 and 1"),
        help="The highest cosine of a negative with its anchor.",
    )
    batch_size: int = option(
        32, check=SIZE, help="The number of texts that the model is given at once."
    )
    query_prompt: str | None = option(
        None,
        help="A text to put before each anchor, in place of the model's prompt of queries.",
    )
    document_prompt: str | None = option(
        None,
        help="A text to put before all other texts, in place of the model's prompt of documents.",
    )


def check_paths(options: MiningOptions) -> None:
    """Check the pairs, the model and the corpus.

    Args:
        options: the flags of mine_hard_negatives.

    Raises:
        InputError: one of them is missing.
    """
    # The import is here, because --help needs no check.
    from official_bert.commands import first_checks

    first_checks.check_tables(options.input_file, "input_file")
    first_checks.check_model(options.model)
    if options.corpus_file:
        first_checks.check_tables(options.corpus_file, "corpus_file")
