#!/usr/bin/env python3
"""Shows the records of create_pretraining_data as text, and their statistics."""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("inspect_pretraining_data")
