#!/usr/bin/env python3
"""Learns a WordPiece vocabulary from raw text."""

from official_bert import flags
from official_bert.options.build_vocab import VocabularyOptions


def main(options: VocabularyOptions):
    from official_bert.runners import build_vocab  # --help needs none of it

    build_vocab.run(options)


if __name__ == "__main__":
    flags.run(main, VocabularyOptions)
