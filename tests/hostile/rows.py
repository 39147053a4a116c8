"""Hostile command lines as rows of tables, and the promise that every script keeps for them.

A row makes its files in a folder of its own, beside a copy of good ones, and runs a script in this
process. The script must end with status 1 and one sentence, or succeed with a warning; it changes
no file that was there and leaves no file that the row does not name.
"""

import fnmatch
import hashlib
import json
import os
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests import toy
from tests.fine_tuning_runs import FAMILIES, Texts
from tests.scripts import end_of

# The text of the one-sentence corpus of the good files: two documents.
CORPUS = (
    "The cat sat on the mat.\nIt was a sunny day.\n\nThe train was late.\nThe driver was in the "
    "park.\n" * 4
)


class Row(NamedTuple):
    """A hostile run.

    Attributes:
        name: the name of the test.
        make: makes the files of the row in a folder, which holds the good files, and returns the
            script and its flags.
        says: parts of the one sentence with which the run ends; empty for a run that succeeds.
        warns: parts of the log.
        leaves: globs of the files, relative to the folder, that the run may add or, where they
            begin with "~", change.
    """

    name: str
    make: Callable[[pathlib.Path], list[str]]
    says: tuple[str, ...] = ()
    warns: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()


def row(
    name: str,
    make: Callable,
    *says: str,
    warns: tuple[str, ...] = (),
    leaves: tuple[str, ...] = (),
):
    """Makes a row; what the sentence says comes last, because there is most of it."""
    return Row(name, make, says, warns, leaves)


def table(rows: list[Row]):
    """Parametrizes a test with the rows of a table, whose names must differ."""
    names = [row.name for row in rows]
    assert len(set(names)) == len(names)
    return pytest.mark.parametrize("row", rows, ids=names)


def check(row: Row, folder: pathlib.Path):
    """Runs a row in a folder with the good files and asserts its end."""
    command = row.make(folder)
    before = contents(folder)
    ended = end_of(*command)
    after = contents(folder)

    log_end = ended.log[-2000:]
    if row.says:
        assert ended.status == 1, f"ended with {ended.status}: {ended.sentence or log_end}"
        assert "\n" not in ended.sentence.strip()
        assert "Traceback" not in ended.sentence
    else:
        assert ended.status == 0, ended.sentence
    for part in row.says:
        assert part in ended.sentence, ended.sentence
    for part in row.warns:
        assert part in ended.log, log_end
    added = [name for name in after if name not in before]
    changed = [f"~{name}" for name in before if after.get(name) != before[name]]
    surplus = [name for name in [*added, *changed] if not may_leave(row, name)]
    assert surplus == [], surplus


def may_leave(row: Row, name: str) -> bool:
    """Returns whether the run of a row may add a file or, with "~" before its name, change it."""
    manifests = [f".{records}.manifest.json" for records in row.leaves]
    globs = [*row.leaves, *manifests]
    return any(fnmatch.fnmatch(name, glob) for glob in globs)


def contents(folder: pathlib.Path) -> dict[str, str]:
    """Returns the digest of every file below a folder; of a link, the path that it holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"link to {os.readlink(path)}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def write_good_files(folder: pathlib.Path):
    """Writes a model (vocab.txt, bert_config.json, bert_model.ckpt), corpus.txt and a training set
    of every family.

    The sets are folders named as in tests/fine_tuning_runs.py: classification/train.tsv,
    tagging/train.conll, ...
    """
    toy.make_bert_base_dir(folder, num_hidden_layers=1)
    toy.write_text(folder, CORPUS, "corpus.txt")
    for name, family in FAMILIES.items():
        (folder / name).mkdir()
        for seed, set_name in enumerate(("train", "dev", "test")):
            path = folder / name / set_name
            family.write(path, 4, Texts(seed))


def model_flags(folder: pathlib.Path, **flags) -> list[str]:
    """Returns the flags of the good model, updated with `flags`; None leaves a flag out."""
    given = {
        "vocab_file": folder / "vocab.txt",
        "bert_config_file": folder / "bert_config.json",
        "init_checkpoint": folder / "bert_model.ckpt",
        **flags,
    }
    return [f"--{name}={value}" for name, value in given.items() if value is not None]


def edit_json(path: pathlib.Path, **changes):
    """Changes fields of a JSON file; None removes a field."""
    content = json.loads(path.read_text()) | changes
    kept = {name: value for name, value in content.items() if value is not None}
    path.write_text(json.dumps(kept))
