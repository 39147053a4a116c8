"""The flags of tables of texts that belong together, and the usual names of their columns."""

import dataclasses

from official_bert.options.fields import are_settings, option
from official_bert.options.fine_tuning import CSV, DATA_FORMATS, NO_QUOTING

# The parts of an example, and the usual names of their columns, in lower case.
COLUMNS = {
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
    "header": (),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTables:
    """How the tables of texts that belong together are read."""

    columns: str | None = option(
        None,
        basic=True,
        check=(
            lambda text: are_settings(text, COLUMNS),
            'must have the form "anchor=question,positive=answer,negative=wrong,label=score,header=true", or be a part '
            "of that",
        ),
        help="The columns of the texts, by name or, with header=false, by number from 0, such as "
        "--columns=anchor=question,positive=answer. negative may be several columns, label is the "
        "score of a pair or the class of a text; label= leaves a column of that name out. Without "
        "this flag columns of usual names are read, in any case: anchor, query, sentence1, text; "
        "positive, answer, sentence2; negative, negative_1; label, score. Files .txt have one "
        "sentence a line.",
    )
    quoting: str = option(
        NO_QUOTING,
        choices=(NO_QUOTING, CSV),
        help="What a double quote is in a TSV file: none, a character as any other; csv, the bound "
        "of a field.",
    )
    data_format: str | None = option(
        None,
        choices=DATA_FORMATS,
        help="The form of tables whose names do not end in .tsv, .csv, .jsonl or .parquet.",
    )
