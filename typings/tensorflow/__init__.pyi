"""Lets pyright accept every name of TensorFlow, which has no annotations."""

from typing import Any

def __getattr__(name: str) -> Any: ...
