#!/usr/bin/env python3
"""Exports a checkpoint as a SavedModel that TensorFlow Serving loads."""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("export_saved_model")
