#!/usr/bin/env python3
"""Fine-tunes BERT for named entity recognition on files in CoNLL's format, evaluates it, and predicts with it."""

from official_bert import flags
from official_bert.options.tagging import TaggingOptions


def main(options: TaggingOptions):
    with flags.quiet_imports():  # imports TensorFlow, which --help does not need
        from official_bert.runners import run_ner

    run_ner.run(options)


if __name__ == "__main__":
    flags.run(main, TaggingOptions)
