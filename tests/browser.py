"""Opens a page in headless Chromium, where it is installed."""

import pathlib
import shutil
import subprocess

import pytest

needs_chromium = pytest.mark.skipif(
    not shutil.which("chromium"), reason="Chromium is not installed"
)


def dump_page(page: pathlib.Path) -> str:
    """Returns the HTML of a page after its scripts have run; the profile is a folder beside it."""
    finished = subprocess.run(
        [
            shutil.which("chromium"),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={page.parent / 'profile'}",
            "--virtual-time-budget=5000",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return finished.stdout
