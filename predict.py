#!/usr/bin/env python3
"""Runs an exported model on lines of text and writes its predictions as JSON lines."""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("predict")
