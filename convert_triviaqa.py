#!/usr/bin/env python3
"""Converts TriviaQA-Wiki to training data in SQuAD's format for run_squad, as in the paper."""

from official_bert import command_line

if __name__ == "__main__":
    command_line.run_command("convert_triviaqa")
