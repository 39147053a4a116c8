"""Converts TriviaQA-Wiki to SQuAD training data: the runner of convert_triviaqa.py.

In: TriviaQA's JSON and the folder of its documents. Out: a SQuAD file.
"""

import os

from official_bert.io import files, writing
from official_bert.options.data_tools import TriviaqaOptions
from official_bert.tasks.squad.triviaqa import triviaqa_to_squad


def run(options: TriviaqaOptions):
    """Writes the SQuAD file.

    Raises:
        InputError: there is no such file, it is no TriviaQA JSON, the folder has none of its documents, or the output
            cannot be written.
    """
    documents = os.path.join(options.data_dir, "*")
    writing.keep_apart(
        [options.output_file], {"input_file": [options.input_file], "data_dir": files.matching(documents)}
    )
    triviaqa_to_squad(options.input_file, options.data_dir, options.output_file)
