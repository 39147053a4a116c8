"""export_heads in other formats: the outputs of the SavedModel, from a file with one encoder."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_bert.serving.export_format import export_formats
from official_bert.serving.exported_model import RECORD_FILE
from tests.extensions.many_heads.models import CONFIG, draw_encoder, write_model
from tests.extensions.many_heads.test_export import (
    LONG_TEXT,
    TEXTS,
    answer_alone,
    call,
    draw_adapters,
    list_heads,
    make_features,
    run_heads,
)
from tests.scripts import end_of, flag_list
from tests.serving.answers import TOLERANCES, assert_near
from tests.shared import in_test_long

needs_onnx = pytest.mark.skipif(
    "onnx" not in export_formats(), reason="the extension onnx_files is not installed"
)
needs_litert = pytest.mark.skipif(
    "litert" not in export_formats(), reason="the extension runtimes is not installed"
)
needs_onnxruntime = pytest.mark.needs_extra("onnx", "onnxruntime")
# Large enough for products of 8 bits.
SIZES = {"hidden_size": 64, "intermediate_size": 128}
NUM_NORMS = 1 + 2 * CONFIG["num_hidden_layers"]  # of an encoder


def open_onnx(version: pathlib.Path):
    """A function from the inputs to the outputs of a file; texts are bytes, as in TensorFlow."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(version / "model.onnx"), options)
    names = [output.name for output in session.get_outputs()]
    encode = np.vectorize(str.encode, otypes=[object])

    def run(inputs) -> dict[str, np.ndarray]:
        arrays = {}
        for name, values in inputs.items():
            array = np.asarray(values)
            arrays[name] = array.astype(object) if array.dtype.kind == "U" else array
        outputs = {}
        for name, values in zip(names, session.run(names, arrays), strict=True):
            outputs[name] = encode(values) if values.dtype == object else values
        return outputs

    return run


def read_file(version: pathlib.Path):
    return pytest.importorskip("onnx").load(str(version / "model.onnx"))


def count_encoders(version: pathlib.Path) -> float:
    """How often the file computes an encoder, branches included, by its layer norms."""
    return count_norms(read_file(version).graph) / NUM_NORMS


def count_norms(graph) -> int:
    count = 0
    for node in graph.node:
        count += node.op_type == "LayerNormalization"
        count += sum(count_norms(attribute.g) for attribute in node.attribute)
    return count


def count_word_tables(version: pathlib.Path, width: int) -> int:
    """The number of tables of word embeddings in the file."""
    shape = [CONFIG["vocab_size"], width]
    return sum(tensor.dims == shape for tensor in read_file(version).graph.initializer)


def answer_texts(heads, columns, vocabulary_folder) -> dict[str, np.ndarray]:
    """The outputs of each model alone, without an export."""
    return {
        f"{head}/{name}": values
        for head, folder in heads.items()
        for name, values in answer_alone(folder, columns, vocabulary_folder).items()
    }


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, pathlib.Path]:
    """Models with equal encoders, and one of pairs."""
    folder = tmp_path_factory.mktemp("heads")
    encoder = draw_encoder(1, **SIZES)
    return {
        name: write_model(folder / name, name, encoder, seed, **SIZES)
        for seed, name in enumerate([*list_heads(), "pairs"])
    }


@pytest.fixture(scope="module")
def saved_model(folders, tmp_path_factory):
    return tf.saved_model.load(str(run_heads(folders, tmp_path_factory.mktemp("saved_model"))))


@needs_onnx
@needs_onnxruntime
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_file_has_the_outputs_of_the_saved_model(dtype, folders, saved_model, tmp_path):
    version = run_heads(folders, tmp_path / "heads", export_format="onnx", dtype=dtype)
    files = sorted(path.name for path in version.rglob("*") if path.is_file())
    assert files == ["bert_config.json", "export.json", "model.onnx", "vocab.txt"]
    run = open_onnx(version)
    for num_rows, length in [(5, 12), (1, 24), (4, 3)]:
        inputs = make_features(num_rows, length, seed=length)
        assert_near(run(inputs), call(saved_model, "serving_default", inputs), dtype)
    assert count_encoders(version) == 1
    assert count_word_tables(version, SIZES["hidden_size"]) == 1
    if dtype == "float32":
        encoder_size = sum(weight.size for weight in draw_encoder(1, **SIZES).values())
        assert (version / "model.onnx").stat().st_size <= 1.5 * 4 * encoder_size
    record = json.loads((version / RECORD_FILE).read_text())
    assert record["settings"]["shared_encoders"] == [[*folders]]
    assert (record["flags"]["export_format"], record["converted"]["dtype"]) == ("onnx", dtype)


@needs_onnx
@needs_onnxruntime
def test_a_file_reads_texts(folders, tmp_path):
    names = [name for name in ("single", "score", "vectors") if name in folders]
    heads = {name: folders[name] for name in names}
    version = run_heads(heads, tmp_path / "heads", export_text=True, export_format="onnx")
    run = open_onnx(version)
    for texts in ([*TEXTS, LONG_TEXT, ""], ["rain"]):
        assert_near(run({"text_a": texts}), answer_texts(heads, [texts], tmp_path))
    assert count_encoders(version) == 1


@needs_onnx
@needs_onnxruntime
@pytest.mark.parametrize("kind", ["tags", *in_test_long("long")])
def test_a_file_makes_windows_of_texts(kind, folders, tmp_path):
    encoder = draw_encoder(1, **SIZES)
    windows = write_model(tmp_path / kind, kind, encoder, 9, **SIZES)
    heads = {"single": folders["single"], kind: windows}
    version = run_heads(heads, tmp_path / "heads", export_text=True, export_format="onnx")
    texts = [*TEXTS * 9, LONG_TEXT, ""]  # more than a batch of windows
    outputs = open_onnx(version)({"text_a": texts})
    assert_near(outputs, answer_texts(heads, [texts], tmp_path))
    # The windows may have other tokens than the inputs of the classifier.
    assert count_encoders(version) == 2
    assert count_word_tables(version, SIZES["hidden_size"]) == 1


@needs_onnx
@needs_onnxruntime
def test_a_file_computes_pairs_in_addition(folders, tmp_path):
    heads = {name: folders[name] for name in ("single", "pairs", "score")}
    version = run_heads(heads, tmp_path / "heads", export_text=True, export_format="onnx")
    firsts, seconds = [*TEXTS, LONG_TEXT], ["rain started", *TEXTS]
    outputs = open_onnx(version)({"text_a": firsts, "text_b": seconds})
    assert_near(outputs, answer_texts(heads, [firsts, seconds], tmp_path))
    assert count_encoders(version) == 2
    assert count_word_tables(version, SIZES["hidden_size"]) == 1


@needs_onnx
@needs_onnxruntime
def test_a_file_computes_the_encoder_of_each_adapter(tmp_path):
    encoder = draw_encoder(1)
    heads = {
        "a": write_model(tmp_path / "a", "single", encoder, 1, further=draw_adapters(1)),
        "base": write_model(tmp_path / "base", "tags", encoder, 2),
        "same": write_model(tmp_path / "same", "score", encoder, 4, further=draw_adapters(1)),
    }
    expected_version = run_heads(heads, tmp_path / "expected")
    version = run_heads(heads, tmp_path / "heads", export_format="onnx")
    inputs = make_features(4, 10)
    expected = call(tf.saved_model.load(str(expected_version)), "serving_default", inputs)
    assert_near(open_onnx(version)(inputs), expected)
    assert count_encoders(version) == 2
    assert count_word_tables(version, CONFIG["hidden_size"]) == 1


@needs_litert
@pytest.mark.needs_extra("ai_edge_litert")
def test_litert_has_the_outputs_of_the_saved_model(folders, saved_model, tmp_path):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    heads = {name: folders[name] for name in ("single", "tags")}
    version = run_heads(heads, tmp_path / "heads", export_format="litert")
    runner = interpreter.Interpreter(str(version / "model.tflite")).get_signature_runner(
        "serving_default"
    )
    inputs = make_features(3, 9)
    outputs = call(saved_model, "serving_default", inputs)
    expected = {name: outputs[name] for name in outputs if name.startswith(("single/", "tags/"))}
    assert_near(runner(**inputs), expected)


WRONG_FLAGS = [
    ({"export_format": "tensorrt"}, "--export_format"),
    ({"export_format": "onnx", "dtype": "bfloat16"}, "--dtype=bfloat16: is for SavedModels"),
    ({"dtype": "int8"}, "--dtype=int8: saved_model files cannot have it; give --export_format="),
    pytest.param(
        {"export_format": "openvino", "dtype": "int8"},
        "--dtype=int8: openvino files need the examples of one task for it; give --dtype=float32",
        marks=pytest.mark.skipif(
            "openvino" not in export_formats(), reason="the extension openvino is not installed"
        ),
    ),
    (
        {"export_format": "litert", "export_text": True},
        "--export_text: --export_format=litert has signatures of tensors alone; leave it out",
    ),
]


@needs_onnx
@needs_litert
@pytest.mark.parametrize(("flags", "sentence"), WRONG_FLAGS)
def test_flags_that_do_not_go_together(flags, sentence, tmp_path):
    heads = f"a={tmp_path},b={tmp_path}"
    ended = end_of("export_heads", *flag_list(heads=heads, export_dir=tmp_path / "out", **flags))
    assert ended.status == 1
    assert sentence in ended.sentence
    assert not (tmp_path / "out").exists()


@needs_onnx
@needs_onnxruntime
def test_heads_that_a_file_cannot_have_are_named(folders, tmp_path):
    other = write_model(tmp_path / "other", "single", draw_encoder(2, **SIZES), 5, **SIZES)
    flags = flag_list(export_dir=tmp_path / "out", export_format="onnx")
    ended = end_of("export_heads", f"--heads=a={folders['tags']},b={other}", *flags)
    assert ended.status == 1
    assert "differ, first in bert/embeddings/" in ended.sentence
    assert not (tmp_path / "out").exists()


@needs_onnx
@needs_onnxruntime
def test_a_version_is_never_replaced(folders, tmp_path, caplog):
    heads = {name: folders[name] for name in ("single", "score")}
    first = run_heads(heads, tmp_path / "heads")
    files = {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    second = run_heads(heads, tmp_path / "heads", export_format="onnx")
    assert second.name == "2"
    assert "holds versions with other signatures" in caplog.text
    assert files == {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    flags = flag_list(export_dir=second / "model.onnx", export_format="onnx")
    ended = end_of("export_heads", f"--heads=a={heads['single']},b={heads['score']}", *flags)
    assert ended.status == 1
    assert "is a file; name a folder" in ended.sentence
