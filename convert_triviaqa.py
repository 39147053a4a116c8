#!/usr/bin/env python3
"""Makes SQuAD training data of TriviaQA-Wiki, as in the paper, for run_squad.py."""

from official_bert import flags
from official_bert.options.triviaqa import TriviaqaOptions


def main(options: TriviaqaOptions):
    from official_bert.runners import convert_triviaqa

    convert_triviaqa.run(options)


if __name__ == "__main__":
    flags.run(main, TriviaqaOptions)
