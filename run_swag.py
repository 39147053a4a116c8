#!/usr/bin/env python3
"""Fine-tunes BERT for multiple choice on SWAG or CODAH, evaluates it, and predicts with it."""

from official_bert import flags
from official_bert.options.choice import ChoiceOptions


def main(options: ChoiceOptions):
    with flags.quiet_imports():  # imports TensorFlow, which --help does not need
        from official_bert.runners import run_swag

    run_swag.run(options)


if __name__ == "__main__":
    flags.run(main, ChoiceOptions)
