#!/usr/bin/env python3
"""Runs an exported model on lines of text and writes its predictions as JSON lines."""

from official_bert import flags
from official_bert.options.predict import PredictOptions


def main(options: PredictOptions):
    with flags.quiet_imports():  # imports TensorFlow, which --help does not need
        from official_bert.runners import predict

    predict.run(options)


if __name__ == "__main__":
    flags.run(main, PredictOptions)
