#!/usr/bin/env python3
"""Converts TriviaQA-Wiki to training data in SQuAD's format for run_squad, as in the paper."""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("convert_triviaqa")
