#!/usr/bin/env python3
"""Learns a WordPiece vocabulary from raw text."""

from official_bert import flags
from official_bert.options.build_vocab import VocabularyOptions


def main(options: VocabularyOptions):
    with flags.quiet_imports():  # imports TensorFlow, which --help does not need
        from official_bert.runners import build_vocab

    build_vocab.run(options)


if __name__ == "__main__":
    flags.run(main, VocabularyOptions)
