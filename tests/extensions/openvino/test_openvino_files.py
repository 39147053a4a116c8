"""Exports in OpenVINO's own format answer as ONNX files, and in 8 bits by NNCF nearly so."""

import importlib.util
import json
import shutil

import numpy as np
import pytest

from official_bert import Predictor, catalog
from official_bert.extensions.openvino import openvino_writer
from official_bert.extensions.openvino.openvino_runtime import OpenVinoFileRuntime
from official_bert.io.errors import InputError
from official_bert.serving import conversion
from official_bert.serving import model as serving_model
from official_bert.serving.exported_model import RECORD_FILE, OpenedExport
from official_bert.tasks.classification.glue import MrpcProcessor
from tests import toy
from tests.serving import exported
from tests.serving.answers import signatures_of
from tests.shared import in_test_long

pytestmark = pytest.mark.skipif(
    not {"runtimes", "onnx_files"} <= {record.name for record in catalog.extensions()},
    reason="the extensions runtimes and onnx_files are not installed",
)
needs_nncf = pytest.mark.needs_extra("onnx", "openvino", "nncf")
TOLERANCE = 1e-5
INT8_TOLERANCE = 0.35  # a share of the largest value; weights have 7 bits, as AVX2 needs
SHAPES = [(1, 9), (7, 24)]
INT8_FLAGS = {"export_format": "openvino", "dtype": "int8"}
PAIRS = [("the cat sat", "on the mat"), ("a train left", "the station"), ("rain", "a day")]


@pytest.fixture(scope="module")
def nncf():
    """NNCF, whose import takes seconds."""
    return pytest.importorskip("nncf")


def write_pairs(folder, labels):
    """Writes pairs with these labels as the dev set of MRPC; returns the pairs."""
    lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"]
    pairs = []
    for number, label in enumerate(labels):
        pair = ("the cat " + "sat " * (number % 7), "on " + "the mat " * (number % 5))
        pairs.append(pair)
        lines.append(f"{label}\t1\t2\t{pair[0]}\t{pair[1]}\n")
    (folder / "dev.tsv").write_text("".join(lines))
    return pairs


def find_dev_set(kind: str, folder) -> dict[str, str]:
    """Writes small development sets of all kinds; returns the flag that names one."""
    if kind == "mrpc":
        write_pairs(folder, [0, 1] * 10)
        return {"data_dir": str(folder)}
    if kind == "tsv":
        lines = ["text_a\tlabel\n"]
        lines += [f"{first} {second}\tleft\n" for first, second in PAIRS * 3]
        (folder / "dev.tsv").write_text("".join(lines))
        return {"dev_file": str(folder / "dev.tsv")}
    converted = pytest.importorskip("tests.extensions.runtimes.converted")
    converted.write_development_sets(folder)
    if kind == "sts-b":
        return {"data_dir": str(folder)}
    name = "embedding.tsv" if kind == "embedding" else kind
    return {"dev_file": str(folder / name)}


def export(folder, kind: str, **flags) -> OpenedExport:
    options = exported.export_options(folder, kind, **flags)
    return OpenedExport(serving_model.export(options), settings={"runtime": "openvino"})


@needs_nncf
@pytest.mark.parametrize(
    "kind",
    ["mrpc", *in_test_long("sts-b", "tsv", "squad", "ner", "swag", "embedding", "pretraining")],
)
def test_float32_has_the_outputs_of_the_saved_model(kind, tmp_path, tmp_path_factory):
    flags = exported.SQUAD_2 if kind == "squad" else {}
    exported.make_checkpoint(tmp_path, kind)
    opened = export(tmp_path, kind, export_format="saved_model,openvino", **flags)
    assert isinstance(opened._runtime, OpenVinoFileRuntime)
    names = ["serving_default"]
    if kind == "pretraining":
        names.append("serving_masked")
    for name in names:
        for size, length in SHAPES:
            features = exported.batch(kind, size, length)
            if name == "serving_masked":
                features["masked_lm_positions"] = np.array([[2, 1]] * size, np.int32)
            expected = signatures_of(tmp_path / "exports" / "1")[name](**features)
            outputs = opened(name, features)
            assert outputs.keys() == expected.keys()
            for output_name, tensor in expected.items():
                values = tensor.numpy()
                if values.dtype == np.float32:
                    difference = np.abs(outputs[output_name] - values).max()
                    assert difference < TOLERANCE, output_name
                else:
                    np.testing.assert_array_equal(outputs[output_name], values)


@needs_nncf
@pytest.mark.parametrize(
    "kind", ["mrpc", *in_test_long("sts-b", "tsv", "squad", "ner", "swag", "embedding")]
)
def test_8_bits_are_near_float32(kind, nncf, tmp_path, monkeypatch):
    """The ranges are measured on random ids, because the compared inputs are random ids."""
    make_batches = openvino_writer._make_batches

    def random_batches(*arguments):
        random_features = [exported.batch(kind, 1, length) for length in range(4, 44)]
        text_features = make_batches(*arguments)
        assert text_features
        for features in text_features:
            assert features.keys() == random_features[0].keys()
            assert {len(values) for values in features.values()} == {1}
        return random_features

    monkeypatch.setattr(openvino_writer, "_make_batches", random_batches)
    for name, size in (("hidden_size", 64), ("intermediate_size", 128)):
        monkeypatch.setitem(toy.BERT_CONFIG, name, size)
    flags = dict(exported.SQUAD_2) if kind == "squad" else {}
    _, model = exported.make_checkpoint(tmp_path, kind)
    whole = export(tmp_path, kind, export_format="onnx", **flags)
    flags |= find_dev_set(kind, tmp_path)
    opened = export(tmp_path, kind, **INT8_FLAGS, **flags)
    files = {path.name: path.stat().st_size for path in (tmp_path / "exports" / "2").iterdir()}
    assert {"model.xml", "model.bin"} <= files.keys()
    # Of 4 bytes for each weight in float32; the position embeddings stay.
    assert files["model.bin"] < 3 * model.count_params()
    for size, length in SHAPES:
        features = exported.batch(kind, size, length)
        expected = whole("serving_default", features)
        outputs = opened("serving_default", features)
        assert outputs.keys() == expected.keys()
        for name, values in expected.items():
            assert outputs[name].dtype == values.dtype
            assert outputs[name].shape == values.shape
            if values.dtype == np.float32:
                share = np.abs(outputs[name] - values).max() / np.abs(values).max()
                assert 1e-5 < share < INT8_TOLERANCE, name


@pytest.fixture(scope="module")
def calibrated(nncf, tmp_path_factory):
    """The folder of a model, with a version in 8 bits, and a dev set with the model's labels."""
    folder = tmp_path_factory.mktemp("calibrated")
    exported.make_checkpoint(folder, "mrpc")
    pairs = write_pairs(folder, [0, 1] * 10)
    version = serving_model.export(
        exported.export_options(folder, "mrpc", data_dir=str(folder), **INT8_FLAGS)
    )
    write_pairs(folder, [answer["label"] for answer in Predictor(version)(pairs)])
    return folder


@needs_nncf
def test_predictor_and_record(calibrated):
    version = calibrated / "exports" / "1"
    predictor = Predictor(version)  # of the only runtime that opens the files
    assert isinstance(predictor.model._runtime, OpenVinoFileRuntime)
    answers = predictor(PAIRS)
    one_by_one = Predictor(version, batch_size=1, runtime="openvino")(PAIRS)
    assert [answer["label"] for answer in answers] == [one["label"] for one in one_by_one]
    record = json.loads((version / RECORD_FILE).read_text())["converted"]
    assert record["dtype"] == "int8"
    assert sorted(record["sha256"]) == ["model.bin", "model.xml"]
    words = record["converters"]["openvino"].split()
    assert words[0::2] == ["openvino", "nncf"]
    with pytest.raises(InputError, match=r"it has those of openvino$"):
        Predictor(version, runtime="onnxruntime")


@needs_nncf
@pytest.mark.parametrize("name", ["model.xml", "model.bin"])
def test_a_changed_file_is_refused(name, calibrated, tmp_path):
    shutil.copytree(calibrated / "exports" / "1", tmp_path / "1")
    with (tmp_path / "1" / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(InputError, match=f"{name}: is not the file that was exported; copy the"):
        OpenedExport(str(tmp_path / "1"))


@needs_nncf
def test_an_export_that_loses_too_much_is_refused(calibrated, tmp_path, monkeypatch):
    monkeypatch.setattr(MrpcProcessor, "main_metric", "accuracy")
    compute_outputs = OpenVinoFileRuntime.__call__

    def turn_round(self, signature, inputs):
        outputs = compute_outputs(self, signature, inputs)
        return outputs | {"logits": -outputs["logits"]}

    monkeypatch.setattr(OpenVinoFileRuntime, "__call__", turn_round)
    options = exported.export_options(
        calibrated, "mrpc", data_dir=str(calibrated), max_loss=0.1, **INT8_FLAGS
    )
    message = r"--max_loss=0\.1: eval_accuracy is 1 in float32 and 0 in int8 as openvino, a loss of .*; nothing is export"
    with pytest.raises(InputError, match=message):
        serving_model.export(options)
    assert [path.name for path in (calibrated / "exports").iterdir()] == ["1"]


@pytest.mark.parametrize(
    ("kind", "flags", "message"),
    [
        pytest.param(
            "mrpc",
            INT8_FLAGS,
            "--dtype=int8: the ranges of openvino files are measured on the texts of a development",
            id="no texts",
        ),
        pytest.param(
            "mrpc",
            {"export_format": "openvino", "data_dir": "."},
            "--dev_file, --data_dir: are read to measure what 8 bits cost; give --max_loss, too",
            id="texts without need",
        ),
        pytest.param(
            "mrpc",
            {"export_format": "openvino", "export_text": True},
            "--export_text: --export_format=openvino has signatures of tensors alone; leave it out",
            id="raw text",
        ),
        pytest.param(
            "mrpc",
            {"export_format": "openvino", "dtype": "int8_weights"},
            "--dtype=int8_weights: openvino files cannot have it; give --export_format=onnx or",
            id="8 bits of the weights alone",
        ),
        pytest.param(
            "pretraining",
            {"dev_file": "empty", **INT8_FLAGS},
            "--dtype=int8: --task_name=pretraining has no metric of a dev set; leave it out",
            id="pre-training",
        ),
        pytest.param(
            "ner",
            {"dev_file": "empty", **INT8_FLAGS},
            "empty",
            id="no example",
        ),
    ],
)
@pytest.mark.needs_extra("onnx")
def test_flags_that_do_not_go_together(kind, flags, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(conversion, "check_packages", lambda name: None)
    (tmp_path / "empty").touch()
    exported.make_checkpoint(tmp_path, kind)
    with pytest.raises(InputError, match=message):
        serving_model.export(exported.export_options(tmp_path, kind, **flags))
    assert not (tmp_path / "exports").exists()


def test_without_the_package_its_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "nncf" else "there"
    )
    options = exported.export_options(tmp_path, "mrpc", data_dir=str(tmp_path), **INT8_FLAGS)
    message = r"nncf: is not installed; pip install 'official-bert\[nncf\]'"
    with pytest.raises(InputError, match=message):
        serving_model.export(options)
    assert not (tmp_path / "exports").exists()
