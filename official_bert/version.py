"""The version of the package: pyproject.toml, run logs and exported folders read it here."""

__version__ = "0.2.0"
