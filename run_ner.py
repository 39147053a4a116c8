#!/usr/bin/env python3
"""Fine-tunes BERT on named entities in CoNLL's column files, evaluates it and predicts with it."""

from official_bert import flags
from official_bert.options.ner import NerOptions


def main(options: NerOptions):
    with flags.quiet_imports():  # TensorFlow comes in here, not for --help
        from official_bert.runners import tag

    tag.run(options)


if __name__ == "__main__":
    flags.run(main, NerOptions)
