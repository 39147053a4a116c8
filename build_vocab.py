#!/usr/bin/env python3
"""Learns a WordPiece vocabulary from raw text."""

from official_bert import command_line

if __name__ == "__main__":
    command_line.run_command("build_vocab")
