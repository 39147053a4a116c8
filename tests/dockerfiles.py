"""Reads a Dockerfile, and copies files as its COPY instructions do."""

import fnmatch
import os
import pathlib
import shutil
from typing import NamedTuple

from tests.shared import ROOT

# Folders that no commit contains.
LEFTOVERS = (".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "build", "dist", "site")


class Instruction(NamedTuple):
    """An instruction: its line, its name, its words, and the stage that it belongs to."""

    line: int
    name: str
    words: str
    stage: str


def parse(text: str) -> list[Instruction]:
    """Returns the instructions of a Dockerfile; what stands before the first FROM is in stage
    "".
    """
    instructions = []
    stage = ""
    words = ""
    start = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        start = start or number
        words += " " + line.strip().removesuffix("\\").strip()
        if line.rstrip().endswith("\\"):
            continue
        name, _, words = words.strip().partition(" ")
        if name == "FROM":
            stage = words.rpartition(" AS ")[2]
        instructions.append(Instruction(start, name, words.strip(), stage))
        words = ""
        start = 0
    assert not words, f"the instruction of line {start} has no end"
    return instructions


def _is_leftover(name: str) -> bool:
    return name.endswith(".egg-info") or any(fnmatch.fnmatch(name, part) for part in LEFTOVERS)


def project_files() -> list[str]:
    """Returns the files of the checkout, without what builds and environments leave in it."""
    names = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if not _is_leftover(name)]
        names += [str(pathlib.Path(folder, name).relative_to(ROOT)) for name in files]
    return sorted(names)


def _matches(path: str, pattern: str) -> bool:
    """Returns whether a pattern of .dockerignore matches a path or a folder above it."""
    parts = path.split("/")
    if pattern.startswith("**/"):
        return any(fnmatch.fnmatch(part, pattern[3:]) for part in parts)
    depth = pattern.count("/") + 1
    return len(parts) >= depth and all(
        fnmatch.fnmatch(part, piece)
        for part, piece in zip(parts[:depth], pattern.split("/"), strict=True)
    )


def is_ignored(path: str, dockerignore: str) -> bool:
    """Returns whether the builder never sees a file: the last pattern that matches decides."""
    ignored = False
    for pattern in dockerignore.splitlines():
        if not pattern.strip() or pattern.startswith("#"):
            continue
        if _matches(path, pattern.removeprefix("!")):
            ignored = not pattern.startswith("!")
    return ignored


def _is_copied(name: str, pattern: str) -> bool:
    """Returns whether a source of a COPY, a folder or a pattern of files, stands for a file."""
    if name.startswith(f"{pattern}/"):
        return True
    return ("/" in name) == ("/" in pattern) and fnmatch.fnmatch(name, pattern)


def sources(copy: Instruction, files: list[str]) -> dict[str, list[str]]:
    """Returns the files behind each source of a COPY."""
    *patterns, _ = copy.words.split()
    return {pattern: [name for name in files if _is_copied(name, pattern)] for pattern in patterns}


def copy_stage(stage: str, folder: pathlib.Path):
    """Copies what a stage of the project's Dockerfile copies from the checkout into a folder."""
    dockerignore = (ROOT / ".dockerignore").read_text()
    files = [name for name in project_files() if not is_ignored(name, dockerignore)]
    for copy in parse((ROOT / "Dockerfile").read_text()):
        if copy.name != "COPY" or copy.stage != stage:
            continue
        target = copy.words.split()[-1]
        for pattern, names in sources(copy, files).items():
            for name in names:
                is_folder = name.startswith(f"{pattern}/")
                inner = name.removeprefix(f"{pattern}/") if is_folder else name.rpartition("/")[2]
                path = folder / target / inner
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, path)
