"""TriviaQA-Wiki into SQuAD training data: what convert_triviaqa.py does once its flags are read.

In: TriviaQA's JSON and the folder of its documents. Out: a SQuAD file.
"""

from official_bert.options.triviaqa import TriviaqaOptions
from official_bert.tasks.squad.triviaqa import triviaqa_to_squad


def run(options: TriviaqaOptions):
    """Writes the SQuAD file.

    Raises:
        InputError: no such file, one that is no TriviaQA JSON, no document in the folder, or an output that cannot
            be written.
    """
    triviaqa_to_squad(
        options.triviaqa_file, options.evidence_dir, options.output_file, options.max_document_words
    )
