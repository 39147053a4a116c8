#!/usr/bin/env python3
"""Learns a WordPiece vocabulary from raw text."""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("build_vocab")
