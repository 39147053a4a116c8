#!/usr/bin/env python3
"""Makes masked LM and next-sentence TFRecords from raw text for run_pretraining."""

from official_bert.cli import commands


def __getattr__(name: str):
    from official_bert import compat  # late: a run needs none of it

    return compat.name_of("create_pretraining_data", name)


if __name__ == "__main__":
    commands.run_command("create_pretraining_data")
