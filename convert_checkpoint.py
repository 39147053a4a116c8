#!/usr/bin/env python3
"""Converts a checkpoint between the formats of TF1 and Hugging Face, or removes the optimizer slots."""

from official_bert import flags
from official_bert.options.conversion import ConversionOptions


def main(options: ConversionOptions):
    with flags.quiet_imports():  # imports TensorFlow, which --help does not need
        from official_bert.runners import convert_checkpoint

    convert_checkpoint.run(options)


if __name__ == "__main__":
    flags.run(main, ConversionOptions)
