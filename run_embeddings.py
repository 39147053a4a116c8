#!/usr/bin/env python3
"""Trains BERT to give similar texts similar vectors, evaluates the vectors, and writes those of
texts.
"""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("run_embeddings")
