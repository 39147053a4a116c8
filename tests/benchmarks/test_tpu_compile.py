"""Tests that the TPU compiler accepts the pre-training step, and that the step takes the memory that it must take."""

import json
import subprocess
import sys

import pytest

from tests.shared import ROOT, in_test_long

pytestmark = pytest.mark.needs_extra("libtpu")

VOCAB, POSITIONS, SEGMENTS = 30522, 512, 2
GIB = 2**30


def num_weights(layers: int, hidden: int) -> int:
    """The number of weights of a model with its pre-training heads, counted by hand."""
    dense, norm, inner = hidden * hidden + hidden, 2 * hidden, 4 * hidden
    embeddings = (VOCAB + POSITIONS + SEGMENTS) * hidden + norm
    layer = 4 * dense + norm + (hidden * inner + inner) + (inner * hidden + hidden) + norm
    heads = dense + norm + VOCAB + 2 * hidden + 2  # the masked LM's table is that of the embeddings
    return embeddings + layers * layer + dense + heads


def compiled(folder, step: str, *topologies: str) -> list[dict]:
    """The rows that the script writes about a step."""
    output = folder / "rows.jsonl"
    subprocess.run(
        [sys.executable, "benchmarks/tpu_compile.py", "--steps", step, "--topologies", *topologies,
         f"--output={output}"],
        cwd=ROOT, check=True,
    )  # fmt: skip
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["topology"] for row in rows] == list(topologies)
    return rows


# Compiling takes a quarter of a minute of processor time for the smallest model and one or two minutes for BERT-Base.
@pytest.mark.parametrize(
    ("layers", "hidden", "step", "topologies"),
    [
        (2, 128, "tiny:128:8", ["v4:2x2x1", "v5e:2x2"]),
        *in_test_long(
            (12, 768, "base:128:32", ["v5e:2x2"]),
            (2, 128, "tiny:512:8:recompute", ["v4:2x2x1", "v5e:2x2"]),
        ),
    ],
)
def test_a_step_compiles_and_fits(tmp_path, layers, hidden, step, topologies):
    for row in compiled(tmp_path, step, *topologies):
        assert row["fits"]
        # A weight and its two slots are three floats; small arrays are padded, and a batch is small.
        assert row["argument_bytes"] == pytest.approx(12 * num_weights(layers, hidden), rel=0.01)
        assert row["argument_bytes"] + row["temporary_bytes"] + row["program_bytes"] == row["hbm_bytes"]
        assert row["hbm_bytes"] < 16 * GIB


@pytest.mark.long
def test_a_step_that_does_not_fit_is_told(tmp_path):
    (row,) = compiled(tmp_path, "tiny:512:2048", "v5e:2x2")
    assert not row["fits"]
    assert row["reason"].startswith("RESOURCE_EXHAUSTED: ")
