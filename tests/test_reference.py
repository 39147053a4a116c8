"""The examples in the docstrings of the public names run, on a toy model."""

import inspect
import re

import pytest

import official_bert
from official_bert import catalog
from tests import toy

EXAMPLE = re.compile(r"^Example:\n    ```python\n(.*?)    ```$", re.DOTALL | re.MULTILINE)
MODEL = "quickstart_output/full/bert"


def read_example(name: str) -> str:
    """Returns the code of the example in a docstring."""
    docstring = inspect.getdoc(getattr(official_bert, name)) or ""
    (example,) = EXAMPLE.findall(docstring)
    return inspect.cleandoc(example)


def run_example(name: str, folder, learning_rate: str = "3e-4") -> dict:
    """Runs an example on the toy model, and returns its names."""
    code = read_example(name).replace("learning_rate=3e-4", f"learning_rate={learning_rate}")
    assert name in code
    code = code.replace("/tmp", str(folder)).replace(MODEL, str(folder / "bert"))
    names = {}
    exec(code, names)
    return names


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a small BERT and, if there are such models, one of late interaction."""
    folder = tmp_path_factory.mktemp("reference")
    toy.make_bert_base_dir(folder / "bert")
    if "MultiVectorEncoder" in official_bert.__all__:
        from tests.extensions.late_interaction.trained import write_model

        write_model(folder / "my_colbert")
    return folder


TRAINING = {"Classifier", "BertClassifier"}


@pytest.mark.parametrize("name", sorted(set(official_bert.__all__) - TRAINING))
def test_an_example_runs(name, folder):
    run_example(name, folder)


def test_every_public_name_has_an_example():
    names = set(official_bert.__all__)
    assert names >= set(catalog.public_names())
    for name in names:
        assert read_example(name)


def test_the_example_of_keras_training_trains(folder):
    names = run_example("BertClassifier", folder)
    history = names["model"].history.history["loss"]
    assert len(history) == 3
    assert names["model"](names["features"]).shape == (16, 2)


def test_the_example_of_a_classifier_answers_rightly(folder):
    names = run_example("Classifier", folder, learning_rate="1e-2")
    answer = names["classifier"].classify("A train left the station.")
    assert answer["label"] == "vehicle"
    assert answer["score"] > 0.9


def test_the_optimizer_moves_the_weights_as_the_comment_says(folder):
    """By hand: 0.1 * (0.1 g / (sqrt(0.001 g^2) + 1e-6) + 0.01 w)."""
    weight = run_example("AdamWeightDecayOptimizer", folder)["weight"].numpy()
    code = read_example("AdamWeightDecayOptimizer")
    shown = re.search(r"weight\.numpy\(\)  # \[(.*), (.*)\]", code)
    update = 0.1 * (0.1 / 0.001**0.5)
    expected = [1 - update - 0.001, -2 + update + 0.002]
    assert weight == pytest.approx(expected, abs=1e-4)
    assert [float(one) for one in shown.groups()] == pytest.approx(expected, abs=6e-4)
