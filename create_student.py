#!/usr/bin/env python3
"""Makes a smaller model for distillation: some layers of a model, or a new one of a published size."""

from official_bert.cli import commands

if __name__ == "__main__":
    commands.run_command("create_student")
