#!/usr/bin/env python3
"""Writes the vectors that a BERT model computes for the tokens of a text, as JSON lines."""

import functools

from official_bert import compat
from official_bert.cli import commands

__getattr__ = functools.partial(compat.find_name, "extract_features")  # what others import

if __name__ == "__main__":
    commands.run_command("extract_features")
