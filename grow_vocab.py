#!/usr/bin/env python3
"""Gives the vocabulary of a model new words, whose vectors begin as the mean of those of their
pieces.
"""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("grow_vocab")
