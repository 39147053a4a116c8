"""Reads a Dockerfile, and copies files as its COPY instructions do."""

import fnmatch
import os
import pathlib
import shutil
from typing import NamedTuple

from tests.shared import ROOT

# Folders that no commit contains.
LEFTOVERS = (
    ".git",
    ".venv*",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
    "build",
    "dist",
    "site",
    "*.egg-info",
)


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
    return any(fnmatch.fnmatch(name, pattern) for pattern in LEFTOVERS)


def project_files() -> list[str]:
    """Returns the files of the checkout, without what builds and environments leave in it."""
    names = []
    for folder, subfolders, files in os.walk(ROOT):
        # os.walk enters the folders that stay in this list.
        subfolders[:] = [name for name in subfolders if not _is_leftover(name)]
        for file in files:
            path = pathlib.Path(folder, file)
            names.append(str(path.relative_to(ROOT)))
    return sorted(names)


def _matches(path: str, pattern: str) -> bool:
    """Returns whether a pattern of .dockerignore matches a path or a folder above it."""
    parts = path.split("/")
    if pattern.startswith("**/"):
        name_pattern = pattern.removeprefix("**/")
        return any(fnmatch.fnmatch(part, name_pattern) for part in parts)
    part_patterns = pattern.split("/")
    if len(parts) < len(part_patterns):
        return False
    # The parts below the folder that the pattern names do not count.
    pairs = zip(parts, part_patterns, strict=False)
    return all(fnmatch.fnmatch(part, part_pattern) for part, part_pattern in pairs)


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
    files_by_pattern = {}
    for pattern in patterns:
        files_by_pattern[pattern] = [name for name in files if _is_copied(name, pattern)]
    return files_by_pattern


def _target_path(name: str, pattern: str) -> str:
    """Returns the path of a copied file in the target: a folder's files keep theirs in it."""
    folder = f"{pattern}/"
    if name.startswith(folder):
        return name.removeprefix(folder)
    _, _, file = name.rpartition("/")
    return file


def copy_stage(stage: str, folder: pathlib.Path):
    """Copies what a stage of the project's Dockerfile copies from the checkout into a folder."""
    dockerignore = (ROOT / ".dockerignore").read_text()
    files = [name for name in project_files() if not is_ignored(name, dockerignore)]
    for copy in parse((ROOT / "Dockerfile").read_text()):
        if copy.name != "COPY" or copy.stage != stage:
            continue
        *_, target = copy.words.split()
        for pattern, names in sources(copy, files).items():
            for name in names:
                path = folder / target / _target_path(name, pattern)
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, path)
