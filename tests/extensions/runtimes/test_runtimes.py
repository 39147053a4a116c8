"""Exports of every kind of task answer alike in every format, and what is no such export is
refused.
"""

import importlib.util
import json
import re
import shutil
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from official_bert import BertConfig, Predictor, catalog
from official_bert.extensions.runtimes import opening, quality
from official_bert.extensions.runtimes.opening import RUNTIMES
from official_bert.extensions.runtimes.options import EXPORT_FORMATS
from official_bert.features import ENCODER_INPUTS
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.serving import model as serving_model
from official_bert.serving.conversion import check_model
from official_bert.serving.exported_model import RECORD_FILE, OpenedExport, set_threads
from official_bert.serving.model import open_model
from official_bert.tasks.classification.glue import MrpcProcessor
from tests import toy
from tests.serving import exported
from tests.serving.answers import signatures_of
from tests.serving.exported import Exported, batch
from tests.shared import in_test_long

TOLERANCE = 1e-5
EIGHT_BITS = 0.1  # the greatest difference of a probability
SHAPES = [(1, 9), (7, 9), (1, 128), (7, 128)]  # one after the other, by one loaded model
PACKAGES = {"litert": ["ai_edge_litert"], "onnx": ["onnx", "onnxruntime"]}
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
formats = pytest.mark.parametrize(
    "export_format",
    [
        pytest.param(name, marks=pytest.mark.needs_extra(*packages))
        for name, packages in PACKAGES.items()
    ],
)
FLAGS_OF_LOSS = {"export_format": "litert", "dtype": "int8", "max_loss": 0.5}


def export_options(folder, **flags):
    """The options of an export into a folder, of no checkpoint."""
    return catalog.options_class("export_saved_model")(export_dir=str(folder / "exports"), **flags)


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


def read_conversion(version) -> dict:
    """Read what the record of an exported version says of its conversion."""
    record = json.loads((version / RECORD_FILE).read_text())
    return record["converted"]


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


def changed(name: str, change):
    """A change of a file of a version, by a function from bytes to bytes."""

    def apply(version):
        path = version / name
        data = path.read_bytes()
        path.write_bytes(change(data))

    return apply


def removed(name: str):
    """The removal of a file of a version."""

    def apply(version):
        (version / name).unlink()

    return apply


def record_with(**values):
    """A change of values of the record, and of those of its settings that have the same names."""

    def change(data):
        record = json.loads(data)
        record |= values
        settings = record["settings"]
        settings |= {name: value for name, value in values.items() if name in settings}
        return json.dumps(record).encode()

    return changed(RECORD_FILE, change)


@formats
@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            changed("MODEL.onnx", lambda data: data[:-100]),
            "MODEL.onnx: is not the file that was exported; copy the",
            id="truncated model",
        ),
        pytest.param(
            changed("MODEL.onnx", lambda data: b""),
            "MODEL.onnx: is not the file that was exported",
            id="empty model",
        ),
        pytest.param(
            record_with(converted=None),
            'export.json: converted: "sha256" is missing',
            id="no record of the conversion",
        ),
        pytest.param(
            record_with(converted={"sha256": {}}),
            "export.json: does not name MODEL.onnx; put the export's own file back",
            id="no hash of the model",
        ),
        pytest.param(
            record_with(converted={"sha256": {"MODEL.onnx": 7, "../x": "y"}}),
            "MODEL.onnx: is not the file that was exported",
            id="wrong hash of the model",
        ),
        pytest.param(
            record_with(max_seq_length=513),
            "export.json: max_seq_length is beyond the model's 512 positions",
            id="length beyond the positions",
        ),
        pytest.param(
            record_with(export_text=True),
            "export_text is True, but the model's signatures are serving_default",
            id="other signatures",
        ),
        pytest.param(
            changed("assets/vocab.txt", lambda data: data + b"more\n"),
            "vocab.txt: has .* lines, but the model was made",
            id="longer vocabulary",
        ),
        pytest.param(
            changed("assets.extra/labels.txt", lambda data: b"a\nb\n"),
            "export.json was written with other labels",
            id="other labels",
        ),
        pytest.param(
            removed("assets.extra/labels.txt"),
            "but the model answers labels; put it back",
            id="no labels",
        ),
        pytest.param(
            removed("assets.extra/bert_config.json"),
            "bert_config.json: no such file",
            id="no configuration",
        ),
        pytest.param(
            removed("assets/vocab.txt"),
            "vocab.txt: no such file",
            id="no vocabulary",
        ),
        pytest.param(
            removed(RECORD_FILE),
            "export.json: is missing",
            id="no record",
        ),
    ],
)
def test_a_changed_export_is_refused(
    export_format, change, message, tmp_path, tmp_path_factory, monkeypatch
):
    made = exported.shared_export(tmp_path_factory, "mrpc", export_format=export_format)
    version = tmp_path / "1"
    file = RUNTIMES[export_format].FILE
    shutil.copytree(made.path, version)
    # So that the table above has one name, with the ending of ONNX.
    (version / file).rename(version / "MODEL.onnx")
    monkeypatch.setattr(RUNTIMES[export_format], "FILE", "MODEL.onnx")
    monkeypatch.setitem(opening.FILES, export_format, "MODEL.onnx")
    monkeypatch.setattr(
        opening, "_is_tried", lambda one, dtype: one.name == EXPORT_FORMATS[export_format]
    )
    record = version / RECORD_FILE
    record.write_text(record.read_text().replace(file, "MODEL.onnx"))
    OpenedExport(str(tmp_path))
    change(version)
    with pytest.raises(InputError, match=message):
        Predictor(tmp_path)


@formats
def test_a_corrupt_model_with_its_digest_is_refused(export_format, tmp_path, tmp_path_factory):
    made = exported.shared_export(tmp_path_factory, "mrpc", export_format=export_format)
    version = tmp_path / "1"
    shutil.copytree(made.path, version)
    name = RUNTIMES[export_format].FILE
    file = version / name
    file.write_bytes(b"no model")
    digest = files.sha256(str(file))
    write_record = record_with(converted={"sha256": {name: digest}})
    write_record(version)
    with pytest.raises(InputError, match="1: is no complete"):
        OpenedExport(str(version))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param(
            {"export_format": ["litert"], "export_text": True},
            "--export_text: --export_format=litert has signatures of",
            id="texts in LiteRT",
        ),
        pytest.param(
            {"export_format": ["onnx", "saved_model"], "export_text": True},
            "--export_text: --export_format=onnx,saved_model has several formats",
            id="texts in two formats",
        ),
        pytest.param(
            {
                "export_format": ["onnx"],
                "export_text": True,
                "dtype": "int8",
                "max_loss": 0.1,
                "dev_file": __file__,
            },
            "--max_loss: is measured on exports that read tensors",
            id="the loss of an export of texts",
        ),
        pytest.param(
            {"export_format": ["litert"], "estimator_signatures": "tensors"},
            "--estimator_signatures: --export_format=",
            id="signatures of an Estimator in LiteRT",
        ),
        pytest.param(
            {"export_format": ["litert"], "dtype": "bfloat16"},
            "--dtype=bfloat16: is for SavedModels; give float32",
            id="bfloat16 in LiteRT",
        ),
        pytest.param(
            {"export_format": ["litert", "onnx"], "dtype": "float16"},
            "--dtype=float16: litert files cannot have it; give --export_format=onnx or another",
            id="float16 in LiteRT",
        ),
        pytest.param(
            {"export_format": ["litert", "saved_model"], "dtype": "int8"},
            "--dtype=int8: saved_model files cannot have it",
            id="8 bits in a SavedModel and LiteRT",
        ),
        pytest.param(
            {"dtype": "int8"},
            "--dtype=int8: saved_model files cannot have it; give --export_format=onnx or ",
            id="8 bits in a SavedModel",
        ),
    ],
)
def test_flags_that_do_not_go_together(flags, message, tmp_path):
    with pytest.raises(InputError, match=message):
        serving_model.export(export_options(tmp_path, **flags))
    assert not (tmp_path / "exports").exists()


def test_onnx_has_no_activation_of_a_caller():
    config = BertConfig(100, hidden_size=8, num_attention_heads=1, hidden_act=np.abs)
    message = "--export_format=onnx: the activation .* has no ONNX form; give a model with one of"
    with pytest.raises(InputError, match=message):
        check_model("onnx", config)
    check_model("litert", config)


@pytest.mark.parametrize(
    ("package", "export_format"),
    [
        pytest.param("ai_edge_litert", "litert", id="ai_edge_litert"),
        pytest.param("onnx", "onnx", id="onnx"),
        pytest.param("onnxruntime", "onnx", id="onnxruntime"),
    ],
)
def test_a_missing_package_is_named_with_its_list(package, export_format, tmp_path, monkeypatch):
    def find_spec(name):
        return None if name == package else "there"

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    options = export_options(tmp_path, export_format=[export_format])
    message = rf"{package}: is not installed; pip install 'official-bert\[runtimes\]'"
    with pytest.raises(InputError, match=message):
        serving_model.export(options)
    assert not (tmp_path / "exports").exists()


@formats
def test_a_runtime_that_is_not_installed(export_format, tmp_path_factory, monkeypatch):
    made = exported.shared_export(tmp_path_factory, "mrpc", export_format=export_format)
    for name in ("ai_edge_litert.interpreter", "onnxruntime", "openvino"):
        monkeypatch.setitem(sys.modules, name, None)
    message = r"cannot be imported .*; pip install 'official-bert\[runtimes\]'"
    with pytest.raises(InputError, match=message):
        Predictor(made.path)


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


@pytest.mark.parametrize(
    ("runtime", "message"),
    [
        pytest.param(
            "litert",
            "no model for it; it has those of tensorflow",
            id="absent model",
        ),
        pytest.param("x", "must be one of auto", id="unknown runtime"),
    ],
)
def test_a_runtime_that_an_export_does_not_have(runtime, message, tmp_path_factory):
    made = exported.shared_export(tmp_path_factory, "mrpc")
    with pytest.raises(InputError, match=f"runtime='?{runtime}'?: .*{message}"):
        Predictor(made.path, runtime=runtime)
    trained_dir = made.path.parent.parent
    with pytest.raises(InputError, match=r"runtime=onnxruntime: .* is no export, which"):
        open_model(str(trained_dir), 1, settings={"runtime": "onnxruntime"})


@pytest.mark.needs_extra("ai_edge_litert")
@pytest.mark.parametrize("lost", [0.4, 0.6])
def test_an_export_that_loses_too_much_is_refused(lost, tmp_path, monkeypatch):
    """Labels that float32 gets right, of which as many answers are turned round as `lost` says."""
    # With the F1 score toys have no score.
    monkeypatch.setattr(MrpcProcessor, "main_metric", "accuracy")
    exported.make_checkpoint(tmp_path, "mrpc")
    serving_model.export(exported.export_options(tmp_path, "mrpc"))
    exports = tmp_path / "exports"
    pairs = []
    for k in range(20):
        a = "sat " * (k % 7)
        b = "the mat " * (k % 5)
        pairs.append((f"the cat {a}", f"on {b}"))
    lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"]
    for (a, b), answer in zip(pairs, Predictor(exports)(pairs), strict=True):
        label = answer["label"]
        lines.append(f"{label}\t1\t2\t{a}\t{b}\n")
    (tmp_path / "dev.tsv").write_text("".join(lines))

    num_wrong = round(20 * lost)
    is_wrong = np.arange(20)[:, None] < num_wrong
    runtime = RUNTIMES["litert"]
    compute_outputs = runtime.__call__

    def turn_some_round(self, signature, inputs):
        outputs = compute_outputs(self, signature, inputs)
        logits = outputs["logits"]
        return outputs | {"logits": np.where(is_wrong, -logits, logits)}

    monkeypatch.setattr(runtime, "__call__", turn_some_round)
    options = exported.export_options(
        tmp_path,
        "mrpc",
        data_dir=str(tmp_path),
        **FLAGS_OF_LOSS,
    )
    if lost > FLAGS_OF_LOSS["max_loss"]:
        message = r"accuracy is 1 in float32 and 0.4 in int8 as litert, a loss of 60.00%; nothing"
        with pytest.raises(InputError, match=message):
            serving_model.export(options)
        assert [path.name for path in exports.iterdir()] == ["1"]
        return
    serving_model.export(options)
    record = read_conversion(exports / "2")
    assert record["metrics"] == {
        "metric": "eval_accuracy",
        "float32": 1.0,
        "litert": pytest.approx(0.6),
    }
    # As of a task of one's own.
    scores = np.zeros(20)
    monkeypatch.setattr(runtime, "__call__", lambda *_: {"scores": scores})
    message = "nothing is known of the outputs scores of --task_name=mrpc; leave it out"
    with pytest.raises(InputError, match=message):
        serving_model.export(options)


def write_development_sets(folder):
    """Write small development sets of SQuAD, NER, SWAG, embeddings and STS-B."""
    context = "the cat sat on the mat . a train left the station ."
    questions = []
    for number in range(4):
        question = {
            "id": str(number),
            "question": "who " * number + "sat",
            "answers": [{"text": "cat", "answer_start": 4}],
        }
        questions.append(question)
    paragraph = {"context": context, "qas": questions}
    document = {"title": "t", "paragraphs": [paragraph]}
    squad = {"version": "1.1", "data": [document]}
    (folder / "squad").write_text(json.dumps(squad))

    words = context.split()
    tags = ["O", "B-X", "O", "I-X"] * 3 + ["O"]
    lines = [f"{word} {tag}\n" for word, tag in zip(words, tags, strict=True)]
    sentence = "".join(lines)
    (folder / "ner").write_text(f"{sentence}\n{sentence}")

    lines = ["sent1,sent2,ending0,ending1,ending2,ending3,label\n"]
    for label in range(4):
        lines.append(f"the cat,sat,on the mat,rain,a day,the train,{label}\n")
    (folder / "swag").write_text("".join(lines))

    pairs = "the cat\ta cat\t0.1\nrain\tthe rain\t0.9\na day\tthe train left\t0.4\n"
    (folder / "embedding.tsv").write_text("sentence1\tsentence2\tscore\n" + pairs)

    lines = [
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
    ]
    for pair in pairs.splitlines():
        lines.append(f"0\t1\t2\t3\t4\t5\t6\t{pair}\n")
    (folder / "dev.tsv").write_text("".join(lines))


@pytest.mark.needs_extra("ai_edge_litert")
@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        ("sts-b", "eval_spearman"),
        ("squad", "f1"),
        ("ner", "eval_f1"),
        ("swag", "eval_accuracy"),
        ("embedding", "eval_spearman"),
    ],
)
def test_the_metric_of_an_export_is_that_of_the_task(kind, metric, tmp_path, monkeypatch):
    """Weights of a toy are too small to be quantized: 8 bits lose nothing, if the outputs become
    those of the task.
    """
    write_development_sets(tmp_path)
    exported.make_checkpoint(tmp_path, kind)
    flags = dict(FLAGS_OF_LOSS)
    if kind == "sts-b":
        flags["data_dir"] = str(tmp_path)
    elif kind == "embedding":
        flags["dev_file"] = str(tmp_path / "embedding.tsv")
    else:
        flags["dev_file"] = str(tmp_path / kind)
    if kind == "squad":
        flags["max_query_length"] = 6
    options = exported.export_options(tmp_path, kind, **flags)

    if kind == "squad":  # a toy finds no answer
        message = f"{metric} is 0 in float32, of which nothing can be lost"
        with pytest.raises(InputError, match=message):
            serving_model.export(options)
        assert not (tmp_path / "exports").exists()
        monkeypatch.setattr(quality, "check_measurable", lambda *_: None)
        monkeypatch.setattr(quality, "lost_share", lambda whole, small: 0.0)
    serving_model.export(options)

    metrics = read_conversion(tmp_path / "exports" / "1")["metrics"]
    assert metrics["metric"] == metric
    assert metrics["litert"] == metrics["float32"]
    assert bool(metrics["float32"]) == (kind != "squad")


@pytest.mark.parametrize(
    ("kind", "flags", "message"),
    [
        pytest.param(
            "mrpc",
            {"dtype": "float32"},
            "--max_loss: measures what 8 bits cost; give --dtype=int8 or int8_weights",
            id="no 8 bits",
        ),
        pytest.param(
            "mrpc",
            {"max_loss": None, "dev_file": "x"},
            "--dev_file, --data_dir: .* give --max_loss, too",
            id="development set without a greatest loss",
        ),
        pytest.param(
            "mrpc",
            {},
            "--max_loss: is measured on a development set; give its --dev_file, or its --data_dir",
            id="no development set",
        ),
        pytest.param(
            "squad",
            {"data_dir": ".", "max_query_length": 6},
            "--dev_file: must be given",
            id="folder for SQuAD",
        ),
        pytest.param(
            "squad",
            {"dev_file": "unanswered", "max_query_length": 6},
            "has no answers to measure a loss with; give a",
            id="no answers",
        ),
        pytest.param(
            "ner",
            {"dev_file": "absent"},
            "absent: no such file",
            id="absent development set",
        ),
        pytest.param(
            "pretraining",
            {"dev_file": "unanswered"},
            "--max_loss: --task_name=pretraining has no metric of a dev set",
            id="pre-training",
        ),
    ],
)
@pytest.mark.needs_extra("ai_edge_litert")
def test_what_cannot_be_measured(kind, flags, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    question = {"id": "1", "question": "who sat"}
    paragraph = {"context": "the cat sat", "qas": [question]}
    document = {"title": "t", "paragraphs": [paragraph]}
    (tmp_path / "unanswered").write_text(json.dumps({"data": [document]}))
    exported.make_checkpoint(tmp_path, kind)
    with pytest.raises(InputError, match=message):
        serving_model.export(exported.export_options(tmp_path, kind, **FLAGS_OF_LOSS | flags))
    assert not (tmp_path / "exports").exists()


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
