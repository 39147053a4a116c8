#!/usr/bin/env python3
"""Exports a checkpoint as a SavedModel that TensorFlow Serving loads."""

from official_bert import command_line

if __name__ == "__main__":
    command_line.run_command("export_saved_model")
