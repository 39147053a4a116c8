#!/usr/bin/env python3
"""Converts a checkpoint between the formats of TF1 and Hugging Face, or removes the optimizer slots."""

from official_bert import command_line

if __name__ == "__main__":
    command_line.run_command("convert_checkpoint")
