#!/usr/bin/env python3
"""Fine-tunes BERT on SQuAD 1.1 or 2.0, predicts answers with it, and scores them."""

from official_bert.cli import commands


def __getattr__(name: str):
    from official_bert import compat  # late: a run needs none of it

    return compat.name_of("run_squad", name)


if __name__ == "__main__":
    commands.run_command("run_squad")
