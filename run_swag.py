#!/usr/bin/env python3
"""Fine-tunes BERT on SWAG or CODAH, choosing one of four continuations, evaluates it and predicts with it."""

from official_bert import flags
from official_bert.options.choice import ChoiceOptions


def main(options: ChoiceOptions):
    with flags.quiet_imports():  # TensorFlow comes in here, not for --help
        from official_bert.runners import run_swag

    run_swag.run(options)


if __name__ == "__main__":
    flags.run(main, ChoiceOptions)
