#!/usr/bin/env python3
"""Reproduces a table or a figure of the paper: trains and evaluates its models, writes table and plot."""

from official_bert import command_line

if __name__ == "__main__":
    command_line.run_command("run_experiment")
