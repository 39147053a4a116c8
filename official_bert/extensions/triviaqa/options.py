"""The flags of convert_triviaqa."""

import dataclasses

from official_bert.options.fields import LENGTH, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class TriviaQaOptions:
    input_file: str = option(
        basic=True,
        help="A file of questions of TriviaQA, such as qa/wikipedia-train.json of its archive "
        "triviaqa-rc.",
    )
    evidence_dir: str = option(
        basic=True,
        help="The folder evidence of the same archive, which has the folders wikipedia and web.",
    )
    output_file: str = option(basic=True, help="The JSON file to write, in SQuAD 1.1's format.")
    max_tokens: int = option(
        400,
        check=LENGTH,
        help="The number of words and punctuation marks of a document that are kept, from its "
        "beginning. A document without an answer among them is left out.",
    )
