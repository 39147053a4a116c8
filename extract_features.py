#!/usr/bin/env python3
"""Writes the vectors that a BERT model computes for the tokens of a text, as JSON lines."""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("extract_features")
