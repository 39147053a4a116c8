"""What is committed under tests/golden is what the whole recordings in `shared` say."""

import gzip
import json
import pathlib

import numpy as np
import pytest

from tests.golden import reduce
from tests.shared import GOLDEN, SHARED, shared
from tests.tasks.squad.sample import fed_logits

OF_TRANSFORMERS = {"record_transformers.py", "transformers_outputs.npz", "transformers_tokens.jsonl.gz"}
NOT_REDUCED = {"README.md", "reduce.py", "scripts/LICENSE_PYTHON.txt", *OF_TRANSFORMERS}
MAX_BYTES = 12_000_000


def content(path: pathlib.Path):
    """What a file holds, however well it is compressed."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {name: (arrays[name].dtype.str, arrays[name].tolist()) for name in arrays.files}
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def contents(folder: pathlib.Path) -> dict:
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path for path in files}


def test_the_folder_is_small():
    assert sum(path.stat().st_size for path in contents(GOLDEN).values()) < MAX_BYTES


@pytest.mark.needs_shared("golden", "data/vocab")
def test_committed_recordings_are_those_of_shared(tmp_path):
    reduce.main(SHARED, tmp_path)
    committed, reduced = contents(GOLDEN), contents(tmp_path)
    assert set(committed) == set(reduced) | NOT_REDUCED
    for name, path in reduced.items():
        assert content(committed[name]) == content(path), name


@pytest.mark.needs_shared("golden")
@pytest.mark.parametrize("name", ["squad_v1", "squad_v2", "squad_v1cased"])
def test_the_logits_that_are_drawn_again_are_those_that_were_fed(name):
    max_seq_length = json.loads((GOLDEN / name / "settings.json").read_text())["max_seq_length"]
    with np.load(shared("golden", name, "features.npz")) as recorded:
        start_logits, end_logits = fed_logits(len(recorded["unique_id"]), max_seq_length)
        np.testing.assert_array_equal(start_logits, recorded["start_logits"])
        np.testing.assert_array_equal(end_logits, recorded["end_logits"])
