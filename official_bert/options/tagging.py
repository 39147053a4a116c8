"""What a run on named entities is told. Every field is a flag of run_ner.py."""

import dataclasses

from official_bert.options.data_files import DataFilesOptions
from official_bert.options.fields import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingOptions(DataFilesOptions):
    data_dir: str | None = option(
        None, help="The input data folder: train, dev and test, each with .conll or .txt behind it."
    )
    do_lower_case: bool = option(
        True,
        help="Whether to lower case the input text: True for uncased models, False for cased ones, which the paper "
        "takes for names.",
    )
    document_context: bool = option(
        False,
        help="Whether to fill each window up with the text around the sentence in its document, as in the paper; "
        "documents begin at -DOCSTART- lines.",
    )
