#!/usr/bin/env python3
"""Fine-tunes BERT for text classification or regression, evaluates it, and predicts with it."""

from official_bert.cli import commands


def __getattr__(name: str):
    from official_bert import compat  # late: a run needs none of it

    return compat.name_of("run_classifier", name)


if __name__ == "__main__":
    commands.run_command("run_classifier")
