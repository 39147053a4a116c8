"""Where the recordings of the original and the real data lie: the folder `shared` beside the checkout.

Tests that need it skip with a reason when it is absent, and fail instead under REQUIRE_SHARED=1. The same goes
for optional extras under REQUIRE_EXTRAS=1.
"""

import importlib
import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"


def shared(*parts: str) -> pathlib.Path:
    """Path below the shared folder, or a skip (a failure under REQUIRE_SHARED=1)."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        absent(f"{path.relative_to(SHARED.parent)} is not beside this checkout", "REQUIRE_SHARED")
    return path


def extra(module: str):
    """An optional module, or a skip (a failure under REQUIRE_EXTRAS=1)."""
    try:
        return importlib.import_module(module)
    except ImportError:
        absent(f"the optional package {module} is not installed", "REQUIRE_EXTRAS")


def absent(reason: str, variable: str):
    """A skip, or a failure where the environment variable is 1."""
    if os.environ.get(variable) == "1":
        pytest.fail(f"{reason}, and {variable}=1 asks for it")
    pytest.skip(reason)
