#!/usr/bin/env python3
"""Draws the figures of a training, such as its loss and learning rate, into a PNG file."""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("plot_run")
