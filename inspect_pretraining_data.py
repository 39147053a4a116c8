#!/usr/bin/env python3
"""Shows the records of create_pretraining_data as text, and their statistics."""

from official_bert import command_line

if __name__ == "__main__":
    command_line.run_command("inspect_pretraining_data")
