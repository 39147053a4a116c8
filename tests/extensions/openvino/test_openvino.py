"""OpenVINO answers as onnxruntime, and is tried with the other runtimes."""

import importlib.util
import sys
import time

import numpy as np
import pytest
from absl import logging

from official_bert import Predictor, catalog
from official_bert.extensions.openvino.openvino_runtime import (
    OpenVinoBfloat16Runtime,
    OpenVinoRuntime,
)
from official_bert.features import ENCODER_INPUTS
from official_bert.io.errors import InputError
from official_bert.modeling import BertClassifier
from official_bert.serving.export_format import format_runtimes
from official_bert.serving.exported_model import OpenedExport
from tests.serving import exported
from tests.serving.answers import assert_near
from tests.shared import in_test_long

pytestmark = [
    pytest.mark.needs_extra("onnx", "onnxruntime"),
    pytest.mark.skipif(
        not {"runtimes", "onnx_files"} <= {record.name for record in catalog.extensions()},
        reason="the extensions runtimes and onnx_files are not installed",
    ),
]
needs_openvino = pytest.mark.needs_extra("openvino")
TOLERANCE = 1e-5
BFLOAT16_TOLERANCE = 0.05
SHAPES = [(1, 9), (7, 24), (1, 24)]


def open_export(folder, runtime: str) -> OpenedExport:
    return OpenedExport(str(folder), settings={"runtime": runtime})


def assert_equal_outputs(opened, expected_export, kind, tolerance):
    for size, length in SHAPES:
        features = exported.batch(kind, size, length)
        expected = expected_export("serving_default", features)
        outputs = opened("serving_default", features)
        assert outputs.keys() == expected.keys()
        for name, values in expected.items():
            if values.dtype == np.float32:
                np.testing.assert_allclose(outputs[name], values, atol=tolerance, rtol=tolerance)
            else:
                np.testing.assert_array_equal(outputs[name], values, err_msg=name)


@needs_openvino
@pytest.mark.parametrize("dtype", ["float32", *in_test_long("float16", "int8", "int8_weights")])
@pytest.mark.parametrize("kind", ["mrpc", *in_test_long("sts-b", "tsv", "squad", "ner", "swag")])
def test_outputs_are_those_of_onnxruntime(kind, dtype, tmp_path_factory):
    flags = exported.SQUAD_2 if kind == "squad" else {}
    made = exported.shared_export(
        tmp_path_factory, kind, export_format="onnx", dtype=dtype, **flags
    )
    opened = open_export(made.path, "openvino")
    assert isinstance(opened._runtime, OpenVinoRuntime)
    assert_equal_outputs(opened, open_export(made.path, "onnxruntime"), kind, TOLERANCE)


@needs_openvino
def test_kernels_of_8_bits(tmp_path):
    """Of a model whose kernels are large enough for 8 bits."""
    models = pytest.importorskip("tests.extensions.onnx_files.onnx_models")
    from official_bert.extensions.onnx_files import onnx_writer

    model = BertClassifier(models.make_config(), 3)
    models.draw_weights(model)
    content = onnx_writer.write_signature(
        lambda features: {"logits": model(features)},
        onnx_writer.list_inputs(ENCODER_INPUTS, None),
        "int8_weights",
        models.METADATA,
    )
    (tmp_path / "model.onnx").write_bytes(content)
    run = OpenVinoRuntime(str(tmp_path), 1)
    for size, length in SHAPES:
        features = exported.batch("tsv", size, length)
        expected = {"logits": np.asarray(model(features))}
        assert_near(run("serving_default", features), expected, "int8_weights")


@needs_openvino
def test_bfloat16_is_near_or_refused(tmp_path_factory, monkeypatch):
    made = exported.shared_export(tmp_path_factory, "sts-b", export_format="onnx")
    import openvino

    if "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        opened = open_export(made.path, "openvino_bfloat16")
        expected = open_export(made.path, "onnxruntime")
        assert_equal_outputs(opened, expected, "sts-b", BFLOAT16_TOLERANCE)

    class OldCore(openvino.Core):
        def get_property(self, *arguments):
            return ["FP32"]

    with pytest.raises(InputError, match="has no instructions for bfloat16; give runtime=openvino"):
        OpenVinoBfloat16Runtime._check_precision(None, OldCore())


@needs_openvino
def test_it_is_tried_with_the_others(tmp_path_factory, monkeypatch):
    made = exported.shared_export(tmp_path_factory, "mrpc", export_format="onnx")
    runtime = next(one for one in format_runtimes() if one.name == "onnxruntime")
    onnx_class = catalog.load(runtime.runtime_class)
    answer = onnx_class.__call__

    def answer_slowly(self, signature, inputs):
        time.sleep(0.3)
        return answer(self, signature, inputs)

    monkeypatch.setattr(onnx_class, "__call__", answer_slowly)
    messages = []
    monkeypatch.setattr(logging, "info", lambda text, *values: messages.append(text % values))
    predictor = Predictor(made.path)
    assert isinstance(predictor.model._runtime, OpenVinoRuntime)
    assert messages[-1].startswith("openvino answers: milliseconds for 4 rows of 24 tokens: ")
    assert "bfloat16" not in messages[-1]


def test_without_the_package_it_is_not_tried(tmp_path_factory, monkeypatch):
    made = exported.shared_export(tmp_path_factory, "mrpc", export_format="onnx")
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "openvino" else find_spec(name, *rest),
    )
    monkeypatch.setitem(sys.modules, "openvino", None)
    opened = OpenedExport(str(made.path))
    assert not isinstance(opened._runtime, OpenVinoRuntime)
    message = r"openvino: cannot be imported .*; pip install 'official-bert\[openvino\]'"
    with pytest.raises(InputError, match=message):
        open_export(made.path, "openvino")


def test_it_has_no_operations_for_texts(tmp_path_factory):
    made = exported.shared_export(tmp_path_factory, "mrpc", export_format="onnx", export_text=True)
    message = "runtime=openvino: .* has no model for it; it has those of onnxruntime$"
    with pytest.raises(InputError, match=message):
        open_export(made.path, "openvino")
