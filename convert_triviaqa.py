#!/usr/bin/env python3
"""Converts TriviaQA-Wiki to training data in SQuAD's format for run_squad.py, as in the paper."""

from official_bert import flags
from official_bert.options.triviaqa import TriviaqaOptions


def main(options: TriviaqaOptions):
    from official_bert.runners import convert_triviaqa

    convert_triviaqa.run(options)


if __name__ == "__main__":
    flags.run(main, TriviaqaOptions)
