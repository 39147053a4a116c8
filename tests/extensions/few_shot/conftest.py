"""The folder with the good files of hostile runs."""

from tests.hostile.conftest import folder, good_files

__all__ = ["folder", "good_files"]
