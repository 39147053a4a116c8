"""Exports of every kind of task give the same answers in ONNX and LiteRT, by the documented commands."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from tests.serving import exported
from tests.serving.answers import signatures_of
from tests.serving.exported import KINDS, Exported, batch
from tests.shared import ROOT

pytestmark = pytest.mark.needs_extra("ai_edge_litert", "onnxruntime", "tf2onnx")

TOLERANCE = 1e-5
SHAPES = [(1, 9), (7, 9), (1, 128), (7, 128)]
DOCUMENTED = "tsv"  # the kind that the documented commands convert
EIGHT_BITS = 0.1  # the greatest difference of a probability


@pytest.fixture(scope="module", params=[kind for kind in KINDS if kind != DOCUMENTED])
def made(request, tmp_path_factory) -> Exported:
    return exported.shared_export(tmp_path_factory, request.param)


def onnx_runner(path: pathlib.Path):
    """A function of features to outputs by name."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    return lambda features: dict(zip(names, session.run(names, features), strict=True))


def litert_runner(path: pathlib.Path):
    """A function of features to outputs by name."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path))
    run = interpreter.get_signature_runner("serving_default")
    return lambda features: run(**features)


def assert_answers_as_the_export(run, made: Exported, signature: str = "serving_default", tolerance=TOLERANCE):
    served = signatures_of(made.path)[signature]
    for size, length in SHAPES:
        features = batch(made.options.task_name, size, length)
        if signature == "serving_masked":
            features["masked_lm_positions"] = np.int32([[1, length - 1]] * size)
        wanted = served(**{name: tf.constant(values) for name, values in features.items()})
        found = run(features)
        assert found.keys() == wanted.keys()
        for name, values in wanted.items():
            if values.dtype == tf.float32:
                np.testing.assert_allclose(found[name], values, atol=tolerance, rtol=tolerance, err_msg=name)
            elif tolerance == TOLERANCE:
                np.testing.assert_array_equal(texts(found[name]), texts(values.numpy()), err_msg=name)


def texts(values: np.ndarray) -> np.ndarray:
    """Strings of every runtime as Python's; numbers as they are."""
    if values.dtype != object:
        return values
    flat = [value.decode() if isinstance(value, bytes) else value for value in values.ravel()]
    return np.array(flat, object).reshape(values.shape)


def to_onnx(monkeypatch, saved_model: pathlib.Path, output: pathlib.Path, signature: str):
    """Runs the documented command in this process."""
    flags = ["--saved-model", saved_model, "--signature_def", signature, "--opset", "17", "--output", output]
    monkeypatch.setattr(sys, "argv", ["convert", *map(str, flags)])
    with mock.patch.dict(os.environ):  # the converter sets TensorFlow's log level for whatever comes after it
        from tf2onnx import convert

        convert.main()


def to_litert(saved_model: pathlib.Path, output: pathlib.Path):
    """Runs the documented command in this process."""
    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved_model), signature_keys=["serving_default"])
    output.write_bytes(converter.convert())


def test_onnx_answers_as_the_export(made, tmp_path, monkeypatch):
    to_onnx(monkeypatch, made.path, tmp_path / "model.onnx", "serving_default")
    assert_answers_as_the_export(onnx_runner(tmp_path / "model.onnx"), made)


def test_litert_answers_as_the_export(made, tmp_path):
    to_litert(made.path, tmp_path / "model.tflite")
    assert_answers_as_the_export(litert_runner(tmp_path / "model.tflite"), made)


def test_masked_words_in_onnx(tmp_path, tmp_path_factory, monkeypatch):
    made = exported.shared_export(tmp_path_factory, "pretraining")
    to_onnx(monkeypatch, made.path, tmp_path / "model.onnx", "serving_masked")
    assert_answers_as_the_export(onnx_runner(tmp_path / "model.onnx"), made, "serving_masked")


@pytest.mark.long
def test_the_documented_commands(tmp_path, tmp_path_factory, monkeypatch, capsys):
    """Those of the shell as processes, those of Python in this one, which has loaded TensorFlow."""
    made = exported.shared_export(tmp_path_factory, DOCUMENTED)
    shutil.copytree(made.path, tmp_path / "exports" / "1")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "other_runtimes.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(bash|python)\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 6
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    for language, code in blocks:
        if language == "python":
            exec(code, {"__name__": "__main__"})
            if "print(" in code:
                assert "probabilities" in capsys.readouterr().out
            continue
        finished = subprocess.run(
            ["bash", "-e", "-c", code], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
        )
        assert finished.returncode == 0, finished.stderr[-2000:]
    assert_answers_as_the_export(onnx_runner(tmp_path / "model.onnx"), made)
    assert_answers_as_the_export(litert_runner(tmp_path / "model.tflite"), made)
    assert_answers_as_the_export(onnx_runner(tmp_path / "model.int8.onnx"), made, tolerance=EIGHT_BITS)
    assert_answers_as_the_export(litert_runner(tmp_path / "model.int8.tflite"), made, tolerance=EIGHT_BITS)
