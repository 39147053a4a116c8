#!/usr/bin/env python3
"""Converts a checkpoint between TF1's form and Hugging Face's, or strips what only training needs."""

from official_bert import flags
from official_bert.options.conversion import ConversionOptions


def main(options: ConversionOptions):
    with flags.quiet_imports():  # TensorFlow comes in here, not for --help
        from official_bert.runners import convert_checkpoint

    convert_checkpoint.run(options)


if __name__ == "__main__":
    flags.run(main, ConversionOptions)
