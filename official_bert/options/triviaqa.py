"""What the conversion of TriviaQA is told. Every field is a flag of convert_triviaqa.py."""

import dataclasses

from official_bert.options.fields import POSITIVE, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class TriviaqaOptions:
    triviaqa_file: str = option(help="TriviaQA's questions, such as qa/wikipedia-train.json.")
    evidence_dir: str = option(help="Folder of the documents, such as evidence/wikipedia.")
    output_file: str = option(
        help="SQuAD json of version 1.1. A question of two documents becomes two, named <question id>--<document>."
    )
    max_document_words: int = option(
        400,
        check=POSITIVE,
        help="Words after which a document is cut; one without an answer up to there is left out.",
    )
