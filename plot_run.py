#!/usr/bin/env python3
"""Draws the loss, the accuracies and the learning rate of a training into a PNG file."""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("plot_run")
