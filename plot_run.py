#!/usr/bin/env python3
"""Draws the loss, the accuracies and the learning rate of a training into a PNG file."""

from official_bert import flags
from official_bert.options.plot_run import PlotOptions


def main(options: PlotOptions):
    with flags.quiet_imports():  # the figures of older runs are in files that TensorFlow reads
        from official_bert.runners import plot_run

    plot_run.run(options)


if __name__ == "__main__":
    flags.run(main, PlotOptions)
