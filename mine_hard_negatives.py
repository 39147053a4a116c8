#!/usr/bin/env python3
"""Finds for pairs of texts the wrong answers that an encoder takes for right ones, to train a
better one on.
"""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("mine_hard_negatives")
