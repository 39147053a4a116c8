#!/usr/bin/env python3
"""Makes the records of create_pretraining_data --generator=sharded on a cluster, with Apache Beam."""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("create_pretraining_data_beam")
