#!/usr/bin/env python3
"""Makes masked LM and next-sentence TFRecords from raw text for run_pretraining."""

import functools

from official_bert import compat
from official_bert.cli import commands

__getattr__ = functools.partial(compat.find_name, "create_pretraining_data")  # what others import

if __name__ == "__main__":
    commands.run_command("create_pretraining_data")
