#!/usr/bin/env python3
"""Reproduces a table or a figure of the paper: trains and evaluates all its models, and writes the table and its plot."""

from official_bert import command_line

if __name__ == "__main__":
    command_line.run_command("run_experiment")
