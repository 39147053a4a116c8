"""The flags of tables of related texts, and the usual names of their columns."""

import dataclasses

from official_bert.options.fields import option
from official_bert.options.fine_tuning import CSV, DATA_FORMATS, NO_QUOTING, DataFilesOptions

# The parts of an example, and the usual names of their columns, in lower case.
USUAL_NAMES = {
    "anchor": (
        "anchor",
        "query",
        "question",
        "sentence1",
        "sentence_a",
        "text_a",
        "text",
        "sentence",
    ),
    "positive": ("positive", "answer", "passage", "document", "sentence2", "sentence_b", "text_b"),
    "negative": ("negative", "negatives"),
    "label": ("label", "score", "similarity_score", "similarity", "relatedness_score"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableFormat:
    """The format of tables of texts."""

    has_header: bool = option(
        True,
        help="Whether the first line of a TSV or CSV file names the columns. Without a header, "
        "columns are numbers from 0.",
    )
    quoting: str = option(
        NO_QUOTING,
        choices=(NO_QUOTING, CSV),
        help="How a TSV file uses double quotes. With none they are ordinary characters, with csv "
        "they enclose fields.",
    )
    data_format: str | None = option(
        None,
        choices=DATA_FORMATS,
        help="The format of tables whose names do not end in .tsv, .csv, .jsonl or .parquet.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTables(TableFormat):
    """How tables of related texts are read."""

    anchor_column: str | None = option(
        None,
        basic=True,
        help="The column of the first text, by name or by number from 0. Names match in any case. "
        "Without this flag it is a column of a usual name, such as anchor, query, sentence1 or "
        "text. Files .txt have no columns, but one sentence a line.",
    )
    positive_column: str | None = option(
        None,
        basic=True,
        help="The column of the text that belongs to the first one; empty for none. Without this "
        "flag it is a column of a usual name, such as positive, answer or sentence2.",
    )
    negative_columns: list[str] | None = option(
        None,
        help="The columns of texts that do not belong to the first one, separated by commas; empty "
        "for none. Without this flag they are the columns called negative, negative_1 and so on.",
    )
    label_column: str | None = option(
        None,
        basic=True,
        help="The column of the score of a pair or of the class of a text; empty for none. Without "
        "this flag it is a column of a usual name, such as label or score.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RelatedTextsOptions(DataFilesOptions, TextTables):
    """The flags of the trainings on tables of related texts, or on one sentence a line."""

    data_dir: str | None = option(
        None,
        basic=True,
        help="The folder with the files train, dev and test, each a .tsv, .csv, .jsonl, .parquet "
        "or .txt.",
    )
