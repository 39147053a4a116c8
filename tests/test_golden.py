"""What is committed under tests/golden is small, and what is left out there can be made again."""

import json

import numpy as np
import pytest

from tests.shared import GOLDEN, shared
from tests.tasks.squad.sample import fed_logits

MAX_BYTES = 12_000_000


def test_the_folder_is_small():
    files = [path for path in GOLDEN.rglob("*") if path.is_file()]
    num_bytes = sum(path.stat().st_size for path in files)
    assert num_bytes < MAX_BYTES


@pytest.mark.needs_shared("golden")
@pytest.mark.parametrize("name", ["squad_v1", "squad_v2", "squad_v1cased"])
def test_the_logits_that_are_drawn_again_are_those_that_were_fed(name):
    settings = json.loads((GOLDEN / name / "settings.json").read_text())
    with np.load(shared("golden", name, "features.npz")) as recorded:
        num_features = len(recorded["unique_id"])
        start_logits, end_logits = fed_logits(num_features, settings["max_seq_length"])
        np.testing.assert_array_equal(start_logits, recorded["start_logits"])
        np.testing.assert_array_equal(end_logits, recorded["end_logits"])
