#!/usr/bin/env python3
"""Fine-tunes BERT for text classification or regression, evaluates it, and predicts with it."""

import functools

from official_bert import compat
from official_bert.cli import commands

__getattr__ = functools.partial(compat.find_name, "run_classifier")  # what others import

if __name__ == "__main__":
    commands.run_command("run_classifier")
