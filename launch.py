#!/usr/bin/env python3
"""Starts a training script as several workers on this machine, and starts them again after a failure."""

from official_bert import command_line

if __name__ == "__main__":
    command_line.run_command("launch")
