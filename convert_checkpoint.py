#!/usr/bin/env python3
"""Converts a checkpoint between the formats of TF1 and Hugging Face, or removes the optimizer
slots.
"""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("convert_checkpoint")
