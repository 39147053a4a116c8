#!/usr/bin/env python3
"""Fine-tunes BERT on named entities in CoNLL's column files, evaluates it and predicts with it."""

from official_bert import flags
from official_bert.options.tagging import TaggingOptions


def main(options: TaggingOptions):
    with flags.quiet_imports():  # TensorFlow comes in here, not for --help
        from official_bert.runners import run_ner

    run_ner.run(options)


if __name__ == "__main__":
    flags.run(main, TaggingOptions)
