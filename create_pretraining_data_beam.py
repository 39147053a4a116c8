#!/usr/bin/env python3
"""Makes the records of create_pretraining_data --generator=sharded on a cluster, with Apache Beam."""

from official_bert import command_line

if __name__ == "__main__":
    command_line.run_command("create_pretraining_data_beam")
