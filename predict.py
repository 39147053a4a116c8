#!/usr/bin/env python3
"""Runs an exported model on lines of text and writes its predictions as JSON lines."""

from official_bert import command_line

if __name__ == "__main__":
    command_line.run_command("predict")
