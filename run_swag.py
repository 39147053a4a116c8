#!/usr/bin/env python3
"""Fine-tunes BERT for multiple choice on SWAG or CODAH, evaluates it, and predicts with it."""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("run_swag")
