#!/usr/bin/env python3
"""Fine-tunes BERT for named entity recognition on files in CoNLL's format, evaluates it, and predicts with it."""

from official_bert import command_line

if __name__ == "__main__":
    command_line.run_command("run_ner")
