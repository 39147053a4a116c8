#!/usr/bin/env python3
"""Writes the vectors that a BERT model computes for the tokens of a text, as JSON lines."""

from official_bert.cli import commands


def __getattr__(name: str):
    from official_bert import compat  # late: a run needs none of it

    return compat.name_of("extract_features", name)


if __name__ == "__main__":
    commands.run_command("extract_features")
