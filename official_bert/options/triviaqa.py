"""The options of converting TriviaQA. Every field is a flag of convert_triviaqa.py."""

import dataclasses

from official_bert.options.fields import POSITIVE, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class TriviaqaOptions:
    triviaqa_file: str = option(
        help="The JSON file of TriviaQA's questions, such as qa/wikipedia-train.json."
    )
    evidence_dir: str = option(help="The folder of the documents, such as evidence/wikipedia.")
    output_file: str = option(
        help="The file to write, JSON in the format of SQuAD 1.1. A question with two documents becomes two "
        "questions, each with the id <question id>--<document>."
    )
    max_document_words: int = option(
        400,
        check=POSITIVE,
        help="The number of words to which a document is truncated. The script leaves out a document whose beginning "
        "has no answer.",
    )
