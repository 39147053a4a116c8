"""Exports of every kind of task answer alike in every format."""

import re
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from official_bert import Predictor
from official_bert.extensions.runtimes import opening
from official_bert.extensions.runtimes.opening import RUNTIMES
from official_bert.extensions.runtimes.options import EXPORT_FORMATS
from official_bert.features import ENCODER_INPUTS
from official_bert.io.errors import InputError
from official_bert.serving import model as serving_model
from official_bert.serving.exported_model import OpenedExport, set_threads
from tests import toy
from tests.extensions.runtimes.converted import PACKAGES, formats, read_conversion
from tests.serving import exported
from tests.serving.answers import signatures_of
from tests.serving.exported import Exported, batch
from tests.shared import in_test_long

TOLERANCE = 1e-5
EIGHT_BITS = 0.1  # the greatest difference of a probability
SHAPES = [(1, 9), (7, 9), (1, 128), (7, 128)]  # one after the other, by one loaded model
REQUESTS = {
    "swag": [
        ("the cat sat", "on", "on the mat", "it was", "rain"),
        ("a day", "in the park", "cat", "mat", "it was a"),
    ],
    "squad": [
        ("who sat ?", "the cat sat on the mat ."),
        ("what ?", "a train left the station at noon . " * 9),
    ],
    "ner": [("the cat",), ("a train left the station at noon",)],
    "embedding": [("the cat",), ("a train left the station at noon",)],
}
PAIRS = [("the cat sat", "on the mat"), ("a train left the station", "rain")]


def texts(values: np.ndarray) -> np.ndarray:
    """Strings of every runtime as Python's; numbers as they are."""
    if values.dtype != object:
        return values
    flat = [value.decode() if isinstance(value, bytes) else value for value in values.ravel()]
    return np.array(flat, object).reshape(values.shape)


def assert_answers_as_the_export(
    opened: OpenedExport, made: Exported, signature: str = "serving_default"
):
    served = signatures_of(made.path)[signature]
    for size, length in SHAPES:
        features = batch(made.options.task_name, size, length)
        if signature == "serving_masked":
            positions = [1, length - 1]
            features["masked_lm_positions"] = np.int32([positions] * size)
        tensors = {name: tf.constant(values) for name, values in features.items()}
        expected = served(**tensors)
        outputs = opened(signature, features)
        assert outputs.keys() == expected.keys()
        for name, values in expected.items():
            if values.dtype == tf.float32:
                np.testing.assert_allclose(
                    outputs[name],
                    values,
                    atol=TOLERANCE,
                    rtol=TOLERANCE,
                    err_msg=name,
                )
            else:
                np.testing.assert_array_equal(
                    texts(outputs[name]),
                    texts(values.numpy()),
                    err_msg=name,
                )


def assert_alike(found, wanted):
    """Equal answers, but for the rounding of numbers."""
    if isinstance(wanted, float):
        assert found == pytest.approx(wanted, abs=TOLERANCE, rel=TOLERANCE)
    elif isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for name in wanted:
            assert_alike(found[name], wanted[name])
    elif isinstance(wanted, list):
        for one, other in zip(found, wanted, strict=True):
            assert_alike(one, other)
    else:
        assert found == wanted


@formats
@pytest.mark.parametrize(
    "kind",
    ["squad", "pretraining", *in_test_long("mrpc", "sts-b", "tsv", "swag", "ner", "embedding")],
)
def test_every_kind_of_task_answers_as_its_saved_model(kind, export_format, tmp_path_factory):
    """Arrays of several shapes, and texts of different lengths by the client of the task."""
    flags = exported.SQUAD_2 if kind == "squad" else {}
    saved_model = exported.shared_export(tmp_path_factory, kind, **flags)
    converted = exported.shared_export(
        tmp_path_factory,
        kind,
        export_format=export_format,
        **flags,
    )
    opened = OpenedExport(str(converted.path))
    assert_answers_as_the_export(opened, saved_model)
    if kind == "pretraining":
        assert_answers_as_the_export(opened, saved_model, "serving_masked")

    requests = REQUESTS.get(kind, PAIRS)
    expected = Predictor(saved_model.path)(requests)
    one_by_one = Predictor(converted.path, batch_size=1)
    assert_alike(one_by_one(requests), expected)


@formats
def test_the_record_says_what_was_converted(export_format, tmp_path_factory):
    made = exported.shared_export(tmp_path_factory, "mrpc", export_format=export_format)
    record = read_conversion(made.path)
    file = RUNTIMES[export_format].FILE
    assert record["dtype"] == "float32"
    assert record["signatures"] == ["serving_default"]
    assert list(record["sha256"]) == [file]
    assert list(record["converters"]) == [export_format]
    _name, version, *_others = record["converters"][export_format].split()
    assert version

    paths = [path for path in made.path.rglob("*") if path.is_file()]
    names = {str(path.relative_to(made.path)) for path in paths}
    assert names == {
        file,
        "assets/vocab.txt",
        "assets.extra/bert_config.json",
        "assets.extra/export.json",
        "assets.extra/labels.txt",
    }


@formats
def test_weights_of_8_bits(export_format, tmp_path, monkeypatch):
    """Smaller, almost the same, and not the same."""
    for name, size in (("hidden_size", 64), ("intermediate_size", 128)):
        monkeypatch.setitem(toy.BERT_CONFIG, name, size)
    exported.make_checkpoint(tmp_path, "sts-b")
    features = batch("sts-b", 7, 20)

    def export(version: str, dtype: str) -> tuple[np.ndarray, int]:
        """Export the model; return its scores of the features and the size of its file."""
        options = exported.export_options(
            tmp_path,
            "sts-b",
            export_format=export_format,
            dtype=dtype,
        )
        serving_model.export(options)
        folder = tmp_path / "exports" / version
        opened = OpenedExport(str(folder))
        outputs = opened("serving_default", features)
        file = folder / RUNTIMES[export_format].FILE
        return outputs["score"], file.stat().st_size

    whole_scores, whole_size = export("1", "float32")
    small_scores, small_size = export("2", "int8")

    # The position embeddings, of which a slice is read, stay.
    assert small_size < 0.8 * whole_size
    differences = np.abs(small_scores - whole_scores)
    greatest = differences.max() / np.abs(whole_scores).max()
    assert 1e-4 < greatest < 2 * EIGHT_BITS  # of a score; ONNX has 7 bits


@formats
@pytest.mark.parametrize(
    "kind", in_test_long("mrpc", "tsv", "swag", "squad", "ner", "pretraining", "embedding")
)
def test_every_kind_of_task_in_8_bits(kind, export_format, tmp_path, monkeypatch):
    """The numbers are near those of float32, but not the same; labels may change places."""
    for name, size in (("hidden_size", 64), ("intermediate_size", 128)):
        monkeypatch.setitem(toy.BERT_CONFIG, name, size)
    exported.make_checkpoint(tmp_path, kind)
    opened = {}
    for version, dtype in (("1", "float32"), ("2", "int8")):
        options = exported.export_options(tmp_path, kind, export_format=export_format, dtype=dtype)
        serving_model.export(options)
        opened[dtype] = OpenedExport(str(tmp_path / "exports" / version))
    for size, length in SHAPES:
        features = batch(kind, size, length)
        expected = opened["float32"]("serving_default", features)
        outputs = opened["int8"]("serving_default", features)
        assert outputs.keys() == expected.keys()
        numbers = [name for name, values in expected.items() if values.dtype == np.float32]
        assert numbers
        for name in numbers:
            differences = np.abs(outputs[name] - expected[name])
            greatest = differences.max() / np.abs(expected[name]).max()
            assert 1e-4 < greatest < 3 * EIGHT_BITS, name


@formats
def test_threads(export_format, tmp_path_factory, monkeypatch):
    made = exported.shared_export(tmp_path_factory, "mrpc", export_format=export_format)
    runtime = RUNTIMES[export_format]
    start = runtime.__init__
    thread_counts = []

    def record_threads(self, path, num_threads):
        thread_counts.append(num_threads)
        start(self, path, num_threads)

    monkeypatch.setattr(runtime, "__init__", record_threads)
    Predictor(made.path, num_threads=1)
    Predictor(made.path)
    assert thread_counts == [1, None]

    with pytest.raises(InputError, match="num_threads=0: must be"):
        Predictor(made.path, num_threads=0)
    message = "num_threads=7: TensorFlow runs already with other threads"
    with pytest.raises(InputError, match=message):
        set_threads(7)


ALL = "saved_model,onnx,litert"
all_installed = pytest.mark.needs_extra(*PACKAGES["litert"], *PACKAGES["onnx"])


@all_installed
@pytest.mark.parametrize("kind", ["mrpc", *in_test_long("swag")])
def test_the_fastest_of_several_runtimes_answers(kind, tmp_path_factory, monkeypatch):
    # The further runtimes of other extensions have tests there.
    main_runtimes = EXPORT_FORMATS.values()
    monkeypatch.setattr(
        opening, "_is_tried", lambda one, dtype: one.is_main and one.name in main_runtimes
    )
    made = exported.shared_export(tmp_path_factory, kind, export_format=ALL)
    folder = str(made.path)
    runtimes = {name: RUNTIMES[name] for name in ALL.split(",")}
    files_by_runtime = {runtime.FILE for runtime in runtimes.values()}
    assert files_by_runtime <= {path.name for path in made.path.iterdir()}

    # Each runtime can be chosen.
    requests = REQUESTS.get(kind, PAIRS)
    saved_model = exported.shared_export(tmp_path_factory, kind)
    expected = Predictor(saved_model.path)(requests)
    for export_format, runtime in runtimes.items():
        runtime_name = EXPORT_FORMATS[export_format]
        opened = OpenedExport(folder, settings={"runtime": runtime_name})
        assert isinstance(opened._runtime, runtime)
        predictor = Predictor(made.path, runtime=runtime_name)
        assert_alike(predictor(requests), expected)

    # Without a choice the fastest one answers.
    measured_shapes = []

    def slow_down(runtime, secs: float):
        answer = runtime.__call__

        def answer_slowly(self, signature, inputs):
            shapes = {name: values.shape for name, values in inputs.items()}
            measured_shapes.append(shapes)
            time.sleep(secs)
            return answer(self, signature, inputs)

        monkeypatch.setattr(runtime, "__call__", answer_slowly)

    slow_down(RUNTIMES["saved_model"], 0.2)
    slow_down(RUNTIMES["onnx"], 0.0)
    slow_down(RUNTIMES["litert"], 0.4)
    messages = []
    monkeypatch.setattr(logging, "info", lambda text, *values: messages.append(text % values))
    predictor = Predictor(made.path, batch_size=2)
    shape = (2, 2, 24) if kind == "swag" else (2, 24)
    shapes = dict.fromkeys(ENCODER_INPUTS, shape)
    assert measured_shapes == [shapes] * 4 * 3
    assert re.match(
        r"onnxruntime answers: .* 2 rows of 24 tokens: tensorflow 2\d\d\.\d, onnxruntime ",
        messages[-1],
    )
    assert isinstance(predictor.model._runtime, RUNTIMES["onnx"])

    # A runtime that cannot be imported is not tried.
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    opened = OpenedExport(folder)
    assert isinstance(opened._runtime, RUNTIMES["saved_model"])
    assert "is not tried (onnxruntime: cannot be imported" in messages[-2]

    monkeypatch.setitem(opening.FILES, "saved_model", "absent")
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    message = r"ai_edge_litert: cannot be imported .*; pip install 'official-bert\[runtimes\]'"
    with pytest.raises(InputError, match=message):
        OpenedExport(folder)


@formats
def test_a_sentence_encoder_opens_an_export(export_format, tmp_path_factory):
    embeddings = pytest.importorskip("official_bert.extensions.embeddings.sentence_encoder")
    open_encoder = embeddings.SentenceEncoder
    made = exported.shared_export(tmp_path_factory, "embedding", export_format=export_format)
    folder = str(made.path)
    encoder = open_encoder(folder, num_threads=1)
    texts = [
        "rain",
        "a train left the station at noon",
        "",
        "the cat " * 40,
    ]
    vectors = encoder.encode(texts, batch_size=3)
    expected = Predictor(made.path).encode(texts)
    np.testing.assert_allclose(vectors, expected, atol=TOLERANCE)
    assert encoder.encode([]).shape == (0, 16)

    settings = {
        "pooling": "cls",
        "normalize": False,
        "max_seq_length": 25,
    }
    for name, value in settings.items():
        with pytest.raises(InputError, match=f"{name}={value!r}: .* is an export"):
            open_encoder(folder, **{name: value})

    classifier = exported.shared_export(tmp_path_factory, "mrpc", export_format=export_format)
    message = "is no export of ids that gives vectors; open it with Predictor"
    with pytest.raises(InputError, match=message):
        open_encoder(str(classifier.path))
