"""The options of a run on named entities. Every field is a flag of run_ner.py."""

import dataclasses

from official_bert.options.data_files import DataFilesOptions
from official_bert.options.fields import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingOptions(DataFilesOptions):
    data_dir: str | None = option(
        None, help="The folder that holds the files train, dev and test, each with the suffix .conll or .txt."
    )
    do_lower_case: bool | None = option(
        otherwise=True,
        help="Lower-case the text. Uncased models need this; cased models, which the paper uses for names, need "
        "--nodo_lower_case.",
    )
    document_context: bool = option(
        False,
        help="Fill each window with the text around the sentence in its document, as in the paper. The files need a "
        "-DOCSTART- line before each document.",
    )
