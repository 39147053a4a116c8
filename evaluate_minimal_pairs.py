#!/usr/bin/env python3
"""Tells how often a pre-trained model gives the right sentence of a pair the better score, as
BLiMP asks.
"""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("evaluate_minimal_pairs")
