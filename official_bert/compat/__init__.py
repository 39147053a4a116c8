"""The original's Python API, as users import it from the scripts."""
