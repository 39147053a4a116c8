#!/usr/bin/env python3
"""Fine-tunes BERT for named entity recognition on files in CoNLL's format, evaluates it, and
predicts with it.
"""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("run_ner")
