"""The encoders open an export with the runtime of their argument `runtime`."""

import importlib

import pytest

from official_bert import catalog
from official_bert.extensions.runtimes.opening import RUNTIMES
from official_bert.io.errors import InputError
from tests.scripts import flag_list, run_here

pytestmark = [
    pytest.mark.needs_extra("onnx", "onnxruntime"),
    pytest.mark.skipif(
        "onnx_files" not in {record.name for record in catalog.extensions()},
        reason="the extension onnx_files is not installed",
    ),
]
ENCODERS = {
    "embeddings": "sentence_encoder:SentenceEncoder",
    "sparse": "sparse_encoder:SparseEncoder",
    "late_interaction": "multi_vector_encoder:MultiVectorEncoder",
}


@pytest.fixture(params=ENCODERS)
def extension(request) -> str:
    if request.param not in {record.name for record in catalog.extensions()}:
        pytest.skip(f"the extension {request.param} is not installed")
    return request.param


@pytest.fixture
def encoder_class(extension):
    module, name = ENCODERS[extension].split(":")
    return getattr(importlib.import_module(f"official_bert.extensions.{extension}.{module}"), name)


@pytest.fixture
def trained(extension, base, tmp_path) -> str:
    """The folder of a model that the encoder opens."""
    if extension == "embeddings":
        return str(base)
    models = importlib.import_module(f"tests.extensions.{extension}.trained")
    return models.write_model(tmp_path / "trained")


def test_encoders_open_the_chosen_runtime(encoder_class, extension, trained, tmp_path):
    flags = {"model": trained, "export_dir": tmp_path / "export"}
    if extension == "embeddings":
        flags |= {"task_name": "embedding"}
    run_here("export_saved_model", *flag_list(**flags, export_format="saved_model,onnx"))
    export_dir = str(tmp_path / "export")
    for name, runtime in (("tensorflow", "saved_model"), ("onnxruntime", "onnx")):
        encoder = encoder_class(export_dir, runtime=name)
        assert type(encoder.model._runtime) is RUNTIMES[runtime]

    message = (
        "runtime=litert: .*export/1 has no model for it; it has those of tensorflow, onnxruntime"
    )
    with pytest.raises(InputError, match=message):
        encoder_class(export_dir, runtime="litert")


def test_a_trained_model_has_no_other_runtime(encoder_class, trained):
    assert encoder_class(trained, runtime="tensorflow").model
    message = "runtime=onnxruntime: .* is no export, which TensorFlow computes; export it"
    with pytest.raises(InputError, match=message):
        encoder_class(trained, runtime="onnxruntime")
    # A wrong path is named first.
    with pytest.raises(InputError) as refused:
        encoder_class(f"{trained}_absent", runtime="onnxruntime")
    assert "_absent" in str(refused.value)
    assert "runtime=" not in str(refused.value)
