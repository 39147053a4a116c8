#!/usr/bin/env python3
"""Fine-tunes BERT on SQuAD 1.1 or 2.0, predicts answers with it, and scores them."""

import functools

from official_bert import compat
from official_bert.cli import commands

__getattr__ = functools.partial(compat.find_name, "run_squad")  # what others import

if __name__ == "__main__":
    commands.run_command("run_squad")
