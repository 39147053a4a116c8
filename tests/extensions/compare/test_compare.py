"""official-bert compare: its points, quality, times, resumption, table and picture."""

import importlib.util
import json
import shutil
import xml.etree.ElementTree

import numpy as np
import pytest

from official_bert import Predictor, catalog
from official_bert.extensions.compare import measuring, picture, points, results
from official_bert.extensions.compare.command import run
from official_bert.extensions.compare.options import CompareOptions, check_paths
from official_bert.io.errors import InputError
from official_bert.model_dir import TaskRecord, write_record
from official_bert.serving import model as serving_model
from official_bert.serving.exported_model import OpenedExport
from official_bert.tasks.classification.glue import MrpcProcessor
from tests.serving import exported

NUM_EXAMPLES = 12


def write_model(folder) -> str:
    """A toy model with its task."""
    exported.make_checkpoint(folder, "mrpc")
    settings = {"max_seq_length": 24, "do_lower_case": True}
    write_record(str(folder), TaskRecord("mrpc", "classification", settings))
    return str(folder)


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> list[str]:
    base = tmp_path_factory.mktemp("models")
    folders = [write_model(base / name) for name in ("large", "small")]
    # Make the labels of the dev set by the first model. It gets three of four right.
    pairs = []
    for number in range(NUM_EXAMPLES):
        pairs.append(("the cat " + "sat " * (number % 7), "on " + "the mat " * (number % 5)))
    answers = Predictor(folders[0])(pairs)
    lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"]
    for number, ((first, second), answer) in enumerate(zip(pairs, answers, strict=True)):
        label = int(answer["label"])
        if number % 4 == 0:
            label = 1 - label
        lines.append(f"{label}\t1\t2\t{first}\t{second}\n")
    (base / "dev.tsv").write_text("".join(lines))
    return folders


@pytest.fixture(autouse=True)
def metric(monkeypatch):
    monkeypatch.setattr(MrpcProcessor, "main_metric", "accuracy")


def make_options(models, output_dir, **flags) -> CompareOptions:
    data_dir = str(output_dir.parent)
    fields = {"model": models, "output_dir": str(output_dir), "data_dir": data_dir}
    return CompareOptions(**fields | {"num_rounds": 1} | flags)


def copy_dev_set(models, folder):
    source = f"{models[0]}/../dev.tsv"
    shutil.copy(source, folder / "dev.tsv")


def test_saved_models_are_compared_and_a_second_run_continues(models, tmp_path, monkeypatch):
    copy_dev_set(models, tmp_path)
    output_dir = tmp_path / "comparison"
    options = make_options(models, output_dir, export_format=["saved_model"])
    rows = run(options)
    assert {row["name"] for row in rows} == {
        f"{name} saved_model {dtype}"
        for name in ("large", "small")
        for dtype in ("float32", "bfloat16")
    }
    by_name = {row["name"]: row for row in rows}
    whole = by_name["large saved_model float32"]
    assert whole["quality"] == pytest.approx(0.75)
    assert whole["metric"] == "eval_accuracy"
    assert whole["num_examples"] == NUM_EXAMPLES
    assert whole["ms_per_text"] > 0
    assert whole["texts_per_second"] > 0
    half = by_name["large saved_model bfloat16"]
    assert half["megabytes"] < whole["megabytes"]

    # The files.
    lines = (output_dir / "comparison.jsonl").read_text().splitlines()
    assert {json.loads(line)["name"] for line in lines} == by_name.keys()
    page = (output_dir / "comparison.md").read_text()
    assert all(f"| {name} | " in page for name in by_name)
    assert whole["command"] in page
    assert whole["command"].startswith("official-bert export_saved_model --model=")
    picture_text = (output_dir / "comparison.svg").read_text()
    root = xml.etree.ElementTree.fromstring(picture_text)
    circles = [one for one in root if one.tag.endswith("circle")]
    assert len(circles) == len(rows)

    # A second run exports and evaluates nothing, and an absent export alone is made again.
    names = []
    export = serving_model.export

    def note(export_options):
        names.append(export_options.export_dir)
        return export(export_options)

    monkeypatch.setattr(serving_model, "export", note)
    again = run(options)
    assert names == []
    qualities = {row["name"]: row["quality"] for row in again}
    assert qualities == {row["name"]: row["quality"] for row in rows}
    point = points.Point(models[1], "saved_model", "float32")
    shutil.rmtree(point.export_dir(str(output_dir)))
    one = make_options([models[1]], output_dir, export_format=["saved_model"], dtype=["float32"])
    assert [row["name"] for row in run(one)] == ["small saved_model float32"]
    assert names == [point.export_dir(str(output_dir))]
    # The rows of other points stay in the file.
    lines = (output_dir / "comparison.jsonl").read_text().splitlines()
    assert {json.loads(line)["name"] for line in lines} == by_name.keys()


def test_an_interrupted_run_has_the_rows_of_finished_points(models, tmp_path, monkeypatch):
    copy_dev_set(models, tmp_path)
    output_dir = tmp_path / "comparison"
    options = make_options(models[:1], output_dir, export_format=["saved_model"])

    def fail(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(measuring, "measure_times", fail)
    with pytest.raises(KeyboardInterrupt):
        run(options)
    rows = results.read_rows(str(output_dir))
    assert [row["dtype"] for row in rows] == ["float32", "bfloat16"]
    assert rows[0]["quality"] == pytest.approx(0.75)
    assert "ms_per_text" not in rows[0]


def test_an_export_that_cannot_answer_is_left_out(models, tmp_path, monkeypatch, caplog):
    """The others are compared."""
    copy_dev_set(models, tmp_path)
    call = OpenedExport.__call__

    def fail_in_bfloat16(self, signature, inputs):
        if "bfloat16" in self.path:
            raise InputError(f"{self.path}: the prediction failed (a shape)")
        return call(self, signature, inputs)

    monkeypatch.setattr(OpenedExport, "__call__", fail_in_bfloat16)
    options = make_options(models[:1], tmp_path / "out", export_format=["saved_model"])
    rows = run(options)
    assert [row["dtype"] for row in rows] == ["float32"]
    assert "is not compared" in caplog.text


def test_a_development_set_that_cannot_be_read_leaves_no_folder(models, tmp_path):
    (tmp_path / "dev.tsv").write_text("")
    with pytest.raises(InputError, match=r"dev\.tsv"):
        run(make_options(models[:1], tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.needs_extra("onnx", "onnxruntime", "ai_edge_litert")
def test_every_format_of_a_model(models, tmp_path):
    extensions = {record.name for record in catalog.extensions()}
    if not {"runtimes", "onnx_files"} <= extensions:
        pytest.skip("the extensions runtimes and onnx_files are not installed")
    copy_dev_set(models, tmp_path)
    rows = run(make_options(models[:1], tmp_path / "comparison", dtype=["float32", "int8"]))
    names = {row["name"].removeprefix("large ") for row in rows}
    # OpenVINO computes the same files, and its own.
    openvino_names = {name for name in names if "openvino" in name}
    expected_names = set()
    if importlib.util.find_spec("openvino") and "openvino" in extensions:
        expected_names.add("onnx float32 openvino")
        if importlib.util.find_spec("nncf"):
            expected_names |= {"openvino float32", "openvino int8"}
    assert openvino_names == expected_names
    assert names - openvino_names == {
        "saved_model float32",
        "onnx float32",
        "onnx int8",
        "litert float32",
        "litert int8",
    }
    num_exports = len(names - {"onnx float32 openvino"})
    assert len([*(tmp_path / "comparison" / "exports").iterdir()]) == num_exports
    for row in rows:
        if row["dtype"] == "float32":
            assert row["quality"] == pytest.approx(0.75)
        # The commands alone make the same exports.
        needs_texts = row["export_format"] == "openvino" and row["dtype"] == "int8"
        assert ("--data_dir=" in row["command"]) == needs_texts


def test_the_front():
    rows = [
        {"quality": 0.9, "ms_per_text": 10.0},
        {"quality": 0.9, "ms_per_text": 12.0},
        {"quality": 0.8, "ms_per_text": 5.0},
        {"quality": 0.7, "ms_per_text": 6.0},
        {"quality": 0.8, "ms_per_text": 5.0},
    ]
    results.mark_front(rows)
    assert [row["is_on_front"] for row in rows] == [True, False, True, False, True]


def test_times_are_medians_of_turns(monkeypatch):
    clock = iter(np.cumsum([0.0, *[1.0] * 1000]))
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: next(clock))
    calls = []

    def make_export(name):
        return lambda signature, batch: calls.append(name)

    batches = measuring.TimedBatches(single=[{}] * 4, full=[{}] * 2)
    exports = {
        name: measuring.TimedExport(make_export(name), batches) for name in ("first", "second")
    }
    times = measuring.measure_times(exports, num_rounds=3)
    # A measurement takes one tick: a second for 4 texts alone, and for 2 batches of 32 texts.
    assert times["first"] == measuring.Times(250.0, 64.0)
    turns = [*["first"] * 6, *["second"] * 6]
    assert calls == turns * 4


def test_the_points_of_a_picture():
    dots = [
        picture.PicturePoint(2.0, 0.5, "a & b", True),
        picture.PicturePoint(4.0, 0.9, "c", False),
    ]
    root = xml.etree.ElementTree.fromstring(picture.draw_points(dots, "ms", "accuracy"))
    circles = [one for one in root if one.tag.endswith("circle")]
    assert float(circles[0].get("cx")) < float(circles[1].get("cx"))
    assert float(circles[0].get("cy")) > float(circles[1].get("cy"))
    assert [circle.get("fill") == "none" for circle in circles] == [False, True]
    texts = [one.text for one in root if one.tag.endswith("text")]
    assert {"a & b", "c", "ms", "accuracy"} <= {*texts}
    # One point, and points of one value.
    xml.etree.ElementTree.fromstring(picture.draw_points(dots[:1], "ms", "accuracy"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"data_dir": None}, "--dev_file, --data_dir: the quality is measured on a development"),
        ({"dev_file": "absent.tsv"}, "--dev_file=absent.tsv: no such file; correct the path"),
        ({"data_dir": "absent"}, "--data_dir=absent: no such folder"),
    ],
)
def test_paths_are_checked_before_the_models_are_read(flags, message, tmp_path):
    with pytest.raises(InputError, match=message):
        check_paths(make_options(["model"], tmp_path / "comparison", **flags))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"export_format": ["pdf"]}, "--export_format=pdf: pdf is not one of saved_model"),
        ({"dtype": ["int3"]}, "--dtype=int3: int3 is not one of float32, bfloat16"),
        ({"model": ["a/base", "b/base/"]}, "--model: two folders are called base, and the"),
    ],
)
def test_points_that_do_not_exist(flags, message, tmp_path):
    with pytest.raises(InputError, match=message):
        points.list_points(
            make_options(**{"models": ["model"], "output_dir": tmp_path / "out"} | flags)
        )


def test_a_damaged_row_is_named(tmp_path):
    (tmp_path / "comparison.jsonl").write_text('{"name": "a"}\n{"name"\n')
    with pytest.raises(InputError, match=r"comparison.jsonl: line 2: is no JSON"):
        results.read_rows(str(tmp_path))
