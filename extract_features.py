#!/usr/bin/env python3
"""Writes the vectors that a BERT model computes for the tokens of a text, as JSON lines."""

from official_bert import flags
from official_bert.options.extraction import ExtractionOptions


def main(options: ExtractionOptions):
    with flags.quiet_imports():  # imports TensorFlow, which --help does not need
        from official_bert.runners import extract_features

    extract_features.run(options)


if __name__ == "__main__":
    flags.run(main, ExtractionOptions)
