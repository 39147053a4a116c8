#!/usr/bin/env python3
"""Answers lines of text with an exported model, as JSON lines."""

from official_bert import flags
from official_bert.options.predict import PredictOptions


def main(options: PredictOptions):
    with flags.quiet_imports():  # TensorFlow comes in here, not for --help
        from official_bert.runners import predict

    predict.run(options)


if __name__ == "__main__":
    flags.run(main, PredictOptions)
