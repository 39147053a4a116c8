"""Exports of a DistilBERT's classifier answer as its folder in every format, with its pooler."""

import numpy as np
import pytest

from official_bert import Predictor, catalog
from tests.extensions.distilbert.folders import make_tensors, write_folder
from tests.extensions.distilbert.record_outputs import OUTPUTS
from tests.golden.record_transformers import PAIRS, TEXTS
from tests.scripts import run_here

NAME = "DistilBertForSequenceClassification"
needs_runtimes = pytest.mark.skipif(
    "runtimes" not in {record.name for record in catalog.extensions()},
    reason="the extension runtimes is not installed",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("classifier") / "model"
    return str(write_folder(path, NAME, make_tensors(NAME, np.load(OUTPUTS))))


@needs_runtimes
@pytest.mark.parametrize(
    "export_format",
    [
        pytest.param("onnx", marks=pytest.mark.needs_extra("onnx", "onnxruntime")),
        pytest.param("litert", marks=pytest.mark.needs_extra("ai_edge_litert")),
    ],
)
def test_another_runtime_answers_as_the_folder(export_format, folder, tmp_path):
    export_dir = tmp_path / "export"
    run_here(
        "export_saved_model",
        f"--model={folder}",
        f"--export_dir={export_dir}",
        f"--export_format={export_format}",
    )
    expected = Predictor(folder)
    predictor = Predictor(str(export_dir))
    for text, pair in zip(TEXTS, PAIRS, strict=True):
        probabilities = predictor(text, pair)["probabilities"]
        assert probabilities == pytest.approx(expected(text, pair)["probabilities"], abs=1e-5)
