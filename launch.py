#!/usr/bin/env python3
"""Starts a training script as several workers on this machine, and starts them again after a
failure.
"""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("launch")
