#!/usr/bin/env python3
"""Reproduces a table or a figure of the paper: trains and evaluates its models, writes the table."""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("run_experiment")
