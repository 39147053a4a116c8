#!/usr/bin/env python3
"""Exports a checkpoint as a SavedModel that TensorFlow Serving loads."""

from official_bert import flags
from official_bert.options.export import ExportOptions


def main(options: ExportOptions):
    with flags.quiet_imports():  # imports TensorFlow, which --help does not need
        from official_bert.runners import export_saved_model

    export_saved_model.run(options)


if __name__ == "__main__":
    flags.run(main, ExportOptions)
