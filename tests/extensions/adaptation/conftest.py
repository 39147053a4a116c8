"""The folder with good files, which hostile runs get a copy of."""

from tests.hostile.conftest import folder, good_files

__all__ = ["folder", "good_files"]
