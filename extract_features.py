#!/usr/bin/env python3
"""Writes the vectors that a BERT model computes for the tokens of a text, as JSON lines."""

from official_bert import command_line

if __name__ == "__main__":
    command_line.run_command("extract_features")
