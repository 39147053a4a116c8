"""The options of reading the text of a corpus."""

import dataclasses

from official_bert.options.fields import option

TEXT, WIKIEXTRACTOR, JSON_LINES = "text", "wikiextractor", "json_lines"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """Flags that the scripts share which read a corpus."""

    input_format: str = option(
        TEXT,
        choices=(TEXT, WIKIEXTRACTOR, JSON_LINES),
        help="The form of --input_file, plain or compressed with gzip: text is lines of text with a blank line between "
        "documents; wikiextractor is what WikiExtractor writes, a page between <doc ...> and </doc>; json_lines has a "
        'JSON object on each line, whose field "text" is a document.',
    )
    strict: bool = option(
        False,
        help="Refuse text with bytes that are not UTF-8. Without this flag they are left out, as in the original, and "
        "a warning counts the lines.",
    )
