#!/usr/bin/env python3
"""Draws the loss, the accuracies and the learning rate of a training into a PNG file."""

from official_bert import command_line

if __name__ == "__main__":
    command_line.run_command("plot_run")
