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
from official_bert.extensions.runtimes import quality
from official_bert.extensions.runtimes.converters import check_model
from official_bert.extensions.runtimes.options import EXPORT_FORMATS
from official_bert.extensions.runtimes.runtimes import RUNTIMES
from official_bert.features import ENCODER_INPUTS
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.serving import model as serving_model
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
PACKAGES = {"litert": ["ai_edge_litert"], "onnx": ["onnx", "onnxruntime", "tf2onnx"]}
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
            features["masked_lm_positions"] = np.int32([[1, length - 1]] * size)
        wanted = served(**{name: tf.constant(values) for name, values in features.items()})
        found = opened(signature, features)
        assert found.keys() == wanted.keys()
        for name, values in wanted.items():
            if values.dtype == tf.float32:
                np.testing.assert_allclose(
                    found[name], values, atol=TOLERANCE, rtol=TOLERANCE, err_msg=name
                )
            else:
                np.testing.assert_array_equal(
                    texts(found[name]), texts(values.numpy()), err_msg=name
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
    made = exported.shared_export(tmp_path_factory, kind, **flags)
    other = exported.shared_export(tmp_path_factory, kind, export_format=export_format, **flags)
    opened = OpenedExport(str(other.path))
    assert_answers_as_the_export(opened, made)
    if kind == "pretraining":
        assert_answers_as_the_export(opened, made, "serving_masked")
    requests = REQUESTS.get(kind, PAIRS)
    assert_alike(Predictor(other.path, batch_size=1)(requests), Predictor(made.path)(requests))


@formats
def test_the_record_says_what_was_converted(export_format, tmp_path_factory):
    made = exported.shared_export(tmp_path_factory, "mrpc", export_format=export_format)
    record = json.loads((made.path / RECORD_FILE).read_text())["converted"]
    file = RUNTIMES[export_format].FILE
    assert (record["dtype"], record["signatures"]) == ("float32", ["serving_default"])
    assert list(record["sha256"]) == [file]
    assert list(record["converters"]) == [export_format]
    assert record["converters"][export_format].split()[1]
    names = {str(path.relative_to(made.path)) for path in made.path.rglob("*") if path.is_file()}
    beside = "bert_config.json", "export.json", "labels.txt"
    assert names == {file, "assets/vocab.txt", *(f"assets.extra/{name}" for name in beside)}


@formats
def test_weights_of_8_bits(export_format, tmp_path, monkeypatch):
    """Smaller, almost the same, and not the same."""
    for name, size in (("hidden_size", 64), ("intermediate_size", 128)):
        monkeypatch.setitem(toy.BERT_CONFIG, name, size)
    exported.make_checkpoint(tmp_path, "sts-b")
    found, sizes = [], []
    for version, dtype in enumerate(("float32", "int8"), 1):
        flags = {"export_format": export_format, "dtype": dtype}
        serving_model.export(exported.export_options(tmp_path, "sts-b", **flags))
        folder = tmp_path / "exports" / str(version)
        found.append(OpenedExport(str(folder))("serving_default", batch("sts-b", 7, 20))["score"])
        sizes.append((folder / RUNTIMES[export_format].FILE).stat().st_size)
    assert sizes[1] < 0.8 * sizes[0]  # the position embeddings, of which a slice is read, stay
    difference = np.abs(found[1] - found[0]) / np.abs(found[0]).max()
    assert 1e-4 < difference.max() < 2 * EIGHT_BITS  # of a score; ONNX has 7 bits


@formats
def test_threads(export_format, tmp_path_factory, monkeypatch):
    made = exported.shared_export(tmp_path_factory, "mrpc", export_format=export_format)
    given, runtime = [], RUNTIMES[export_format]
    start = runtime.__init__

    def watched(self, path, num_threads):
        given.append(num_threads)
        start(self, path, num_threads)

    monkeypatch.setattr(runtime, "__init__", watched)
    Predictor(made.path, num_threads=1)
    Predictor(made.path)
    assert given == [1, None]
    with pytest.raises(InputError, match="num_threads=0: must be"):
        Predictor(made.path, num_threads=0)
    with pytest.raises(
        InputError, match="num_threads=7: TensorFlow runs already with other threads"
    ):
        set_threads(7)


def changed(name: str, change):
    """A change of a file of a version, by a function from bytes to bytes."""

    def apply(version):
        (version / name).write_bytes(change((version / name).read_bytes()))

    return apply


def record_with(**values):
    def change(data):
        record = json.loads(data)
        settings = {name: values[name] for name in values if name in record["settings"]}
        return json.dumps(record | values | {"settings": record["settings"] | settings}).encode()

    return changed(RECORD_FILE, change)


@formats
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            changed("MODEL.onnx", lambda data: data[:-100]),
            "MODEL.onnx: is not the file that was exported; copy the",
        ),
        (changed("MODEL.onnx", lambda data: b""), "MODEL.onnx: is not the file that was exported"),
        (record_with(converted=None), 'export.json: converted: "sha256" is missing'),
        (
            record_with(converted={"sha256": {}}),
            "export.json: does not name MODEL.onnx; put the export's own file back",
        ),
        (
            record_with(converted={"sha256": {"MODEL.onnx": 7, "../x": "y"}}),
            "MODEL.onnx: is not the file that was exported",
        ),
        (
            record_with(max_seq_length=513),
            "export.json: max_seq_length is beyond the model's 512 positions",
        ),
        (
            record_with(export_text=True),
            "export_text is True, but the model's signatures are serving_default",
        ),
        (
            changed("assets/vocab.txt", lambda data: data + b"more\n"),
            "vocab.txt: has .* lines, but the model was made",
        ),
        (
            changed("assets.extra/labels.txt", lambda data: b"a\nb\n"),
            "export.json was written with other labels",
        ),
        (
            lambda version: (version / "assets.extra/labels.txt").unlink(),
            "but the model answers labels; put it back",
        ),
        (
            lambda version: (version / "assets.extra/bert_config.json").unlink(),
            "bert_config.json: no such file",
        ),
        (lambda version: (version / "assets/vocab.txt").unlink(), "vocab.txt: no such file"),
        (lambda version: (version / RECORD_FILE).unlink(), "export.json: is missing"),
    ],
)
def test_a_changed_export_is_refused(
    export_format, change, message, tmp_path, tmp_path_factory, monkeypatch
):
    made = exported.shared_export(tmp_path_factory, "mrpc", export_format=export_format)
    version, file = tmp_path / "1", RUNTIMES[export_format].FILE
    shutil.copytree(made.path, version)
    # So that the table above has one name, with the ending of ONNX.
    (version / file).rename(version / "MODEL.onnx")
    monkeypatch.setattr(RUNTIMES[export_format], "FILE", "MODEL.onnx")
    record = version / RECORD_FILE
    record.write_text(record.read_text().replace(file, "MODEL.onnx"))
    OpenedExport(str(tmp_path))
    change(version)
    with pytest.raises(InputError, match=message):
        Predictor(tmp_path)


@formats
def test_a_corrupt_model_with_its_digest_is_refused(export_format, tmp_path, tmp_path_factory):
    made = exported.shared_export(tmp_path_factory, "mrpc", export_format=export_format)
    version, file = tmp_path / "1", RUNTIMES[export_format].FILE
    shutil.copytree(made.path, version)
    (version / file).write_bytes(b"no model")
    digest = files.sha256(str(version / file))
    record_with(converted={"sha256": {file: digest}})(version)
    with pytest.raises(InputError, match="1: is no complete"):
        OpenedExport(str(version))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {"export_format": ["litert"], "export_text": True},
            "--export_text: --export_format=litert has signatures of",
        ),
        (
            {"export_format": ["litert"], "estimator_signatures": "tensors"},
            "--estimator_signatures: --export_format=",
        ),
        (
            {"export_format": ["litert"], "dtype": "bfloat16"},
            "--dtype=bfloat16: is for SavedModels; give float32",
        ),
        (
            {"export_format": ["litert", "saved_model"], "dtype": "int8"},
            "--dtype=int8: is no SavedModel's",
        ),
        ({"dtype": "int8"}, "--dtype=int8: is no SavedModel's; --export_format=litert or onnx"),
    ],
)
def test_flags_that_do_not_go_together(flags, message, tmp_path):
    with pytest.raises(InputError, match=message):
        serving_model.export(export_options(tmp_path, **flags))
    assert not (tmp_path / "exports").exists()


def test_onnx_takes_no_model_with_one_attention_head():
    config = BertConfig(100, hidden_size=8, num_attention_heads=1)
    with pytest.raises(
        InputError,
        match=r"--export_format=onnx: onnxruntime's fusion .* one attention head; give litert",
    ):
        check_model("onnx", config)
    check_model("litert", config)


@pytest.mark.parametrize("package", ["ai_edge_litert", "tf2onnx", "onnxruntime"])
def test_a_missing_package_is_named_with_its_list(package, tmp_path, monkeypatch):
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else "there"
    )
    export_format = next(name for name, packages in PACKAGES.items() if package in packages)
    options = export_options(tmp_path, export_format=[export_format])
    with pytest.raises(
        InputError, match=rf"{package}: is not installed; pip install 'official-bert\[runtimes\]'"
    ):
        serving_model.export(options)
    assert not (tmp_path / "exports").exists()


@formats
def test_a_runtime_that_is_not_installed(export_format, tmp_path_factory, monkeypatch):
    made = exported.shared_export(tmp_path_factory, "mrpc", export_format=export_format)
    for name in ("ai_edge_litert.interpreter", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        InputError, match=r"cannot be imported .*; pip install 'official-bert\[runtimes\]'"
    ):
        Predictor(made.path)


ALL = "saved_model,onnx,litert"
all_installed = pytest.mark.needs_extra(*PACKAGES["litert"], *PACKAGES["onnx"])


@all_installed
@pytest.mark.parametrize("kind", ["mrpc", *in_test_long("swag")])
def test_the_fastest_of_several_runtimes_answers(kind, tmp_path_factory, monkeypatch):
    made = exported.shared_export(tmp_path_factory, kind, export_format=ALL)
    assert {runtime.FILE for runtime in RUNTIMES.values()} <= {
        path.name for path in made.path.iterdir()
    }
    requests = REQUESTS.get(kind, PAIRS)
    wanted = Predictor(exported.shared_export(tmp_path_factory, kind).path)(requests)
    for slow, runtime in RUNTIMES.items():
        opened = OpenedExport(str(made.path), settings={"runtime": EXPORT_FORMATS[slow]})
        assert_alike(Predictor(made.path, runtime=EXPORT_FORMATS[slow])(requests), wanted)
        assert isinstance(opened._runtime, runtime)
    given = []
    for name, secs in (("saved_model", 0.2), ("onnx", 0.0), ("litert", 0.4)):

        def slower(self, signature, inputs, secs=secs, answer=RUNTIMES[name].__call__):
            given.append({name: values.shape for name, values in inputs.items()})
            time.sleep(secs)
            return answer(self, signature, inputs)

        monkeypatch.setattr(RUNTIMES[name], "__call__", slower)
    logged = []
    monkeypatch.setattr(logging, "info", lambda text, *values: logged.append(text % values))
    predictor = Predictor(made.path, batch_size=2)
    shape = (2, 2, 24) if kind == "swag" else (2, 24)
    assert given == [dict.fromkeys(ENCODER_INPUTS, shape)] * 4 * 3
    assert re.match(
        r"onnxruntime answers: .* 2 rows of 24 tokens: tensorflow 2\d\d\.\d, onnxruntime ",
        logged[-1],
    )
    assert isinstance(predictor.model._runtime, RUNTIMES["onnx"])
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert isinstance(OpenedExport(str(made.path))._runtime, RUNTIMES["saved_model"])
    assert "is not tried (onnxruntime: cannot be imported" in logged[-2]
    monkeypatch.setattr(RUNTIMES["saved_model"], "FILE", "absent")
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(
        InputError,
        match=r"ai_edge_litert: cannot be imported .*; pip install 'official-bert\[runtimes\]'",
    ):
        OpenedExport(str(made.path))


@pytest.mark.parametrize(
    ("runtime", "message"),
    [("litert", "no model for it; it has those of tensorflow"), ("x", "must be one of auto")],
)
def test_a_runtime_that_an_export_does_not_have(runtime, message, tmp_path_factory):
    made = exported.shared_export(tmp_path_factory, "mrpc")
    with pytest.raises(InputError, match=f"runtime='?{runtime}'?: .*{message}"):
        Predictor(made.path, runtime=runtime)
    with pytest.raises(InputError, match=r"runtime=onnxruntime: .* is no export, which"):
        open_model(str(made.path.parent.parent), 1, settings={"runtime": "onnxruntime"})


@pytest.mark.needs_extra("ai_edge_litert")
@pytest.mark.parametrize("lost", [0.4, 0.6])
def test_an_export_that_loses_too_much_is_refused(lost, tmp_path, monkeypatch):
    """Labels that float32 gets right, of which as many answers are turned round as `lost` says."""
    # With the F1 score toys have no score.
    monkeypatch.setattr(MrpcProcessor, "main_metric", "accuracy")
    exported.make_checkpoint(tmp_path, "mrpc")
    serving_model.export(exported.export_options(tmp_path, "mrpc"))
    pairs = [(f"the cat {'sat ' * (k % 7)}", f"on {'the mat ' * (k % 5)}") for k in range(20)]
    labels = [answer["label"] for answer in Predictor(tmp_path / "exports")(pairs)]
    rows = "".join(
        f"{label}\t1\t2\t{a}\t{b}\n" for (a, b), label in zip(pairs, labels, strict=True)
    )
    (tmp_path / "dev.tsv").write_text("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n" + rows)
    num_wrong, runtime = round(20 * lost), RUNTIMES["litert"]
    answer = runtime.__call__

    def turned(self, signature, inputs):
        found = answer(self, signature, inputs)
        is_wrong = np.arange(20)[:, None] < num_wrong
        return found | {"logits": np.where(is_wrong, -found["logits"], found["logits"])}

    monkeypatch.setattr(runtime, "__call__", turned)
    options = exported.export_options(tmp_path, "mrpc", data_dir=str(tmp_path), **FLAGS_OF_LOSS)
    if lost > FLAGS_OF_LOSS["max_loss"]:
        with pytest.raises(
            InputError,
            match=r"accuracy is 1 in float32 and 0.4 in int8 as litert, a loss of 60.00%; nothing",
        ):
            serving_model.export(options)
        assert [path.name for path in (tmp_path / "exports").iterdir()] == ["1"]
        return
    serving_model.export(options)
    record = json.loads((tmp_path / "exports" / "2" / RECORD_FILE).read_text())["converted"]
    assert record["metrics"] == {
        "metric": "eval_accuracy",
        "float32": 1.0,
        "litert": pytest.approx(0.6),
    }
    # As of a task of one's own.
    monkeypatch.setattr(runtime, "__call__", lambda *_: {"scores": np.zeros(20)})
    with pytest.raises(
        InputError, match="nothing is known of the outputs scores of --task_name=mrpc; leave it out"
    ):
        serving_model.export(options)


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
    context = "the cat sat on the mat . a train left the station ."
    tags = ["O", "B-X", "O", "I-X"] * 3 + ["O"]
    answers = [{"text": "cat", "answer_start": 4}]
    questions = [
        {"id": str(k), "question": f"{'who ' * k}sat", "answers": answers} for k in range(4)
    ]
    data = [{"title": "t", "paragraphs": [{"context": context, "qas": questions}]}]
    scores = (
        ("the cat", "a cat", 0.1),
        ("rain", "the rain", 0.9),
        ("a day", "the train left", 0.4),
    )
    (tmp_path / "squad").write_text(json.dumps({"version": "1.1", "data": data}))
    sentence = "".join(f"{word} {tag}\n" for word, tag in zip(context.split(), tags, strict=True))
    (tmp_path / "ner").write_text(f"{sentence}\n{sentence}")
    choices = "the cat,sat,on the mat,rain,a day,the train"
    (tmp_path / "swag").write_text(
        "sent1,sent2,ending0,ending1,ending2,ending3,label\n"
        + "".join(f"{choices},{k}\n" for k in range(4))
    )
    table = "".join(f"{a}\t{b}\t{score}\n" for a, b, score in scores)
    (tmp_path / "embedding.tsv").write_text(f"sentence1\tsentence2\tscore\n{table}")
    names = [
        "index",
        "genre",
        "filename",
        "year",
        "old_index",
        "source1",
        "source2",
        "sentence1",
        "sentence2",
        "score",
    ]
    rows = [names, *([*"0123456", a, b, str(score)] for a, b, score in scores)]
    (tmp_path / "dev.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    exported.make_checkpoint(tmp_path, kind)
    given = {
        "sts-b": {"data_dir": str(tmp_path)},
        "embedding": {"dev_file": str(tmp_path / "embedding.tsv")},
    }
    more = given.get(kind, {"dev_file": str(tmp_path / kind)}) | FLAGS_OF_LOSS
    more |= {"max_query_length": 6} if kind == "squad" else {}
    if kind == "squad":  # a toy finds no answer
        with pytest.raises(
            InputError, match=f"{metric} is 0 in float32, of which nothing can be lost"
        ):
            serving_model.export(exported.export_options(tmp_path, kind, **more))
        assert not (tmp_path / "exports").exists()
        monkeypatch.setattr(quality, "check_measurable", lambda *_: None)
        monkeypatch.setattr(quality, "_lost_share", lambda whole, small: 0.0)
    serving_model.export(exported.export_options(tmp_path, kind, **more))
    found = json.loads((tmp_path / "exports" / "1" / RECORD_FILE).read_text())["converted"][
        "metrics"
    ]
    assert found["metric"] == metric
    assert found["litert"] == found["float32"]
    assert bool(found["float32"]) == (kind != "squad")


@pytest.mark.parametrize(
    ("kind", "flags", "message"),
    [
        (
            "mrpc",
            {"dtype": "float32"},
            "--max_loss: measures what 8 bits cost; give --dtype=int8, too",
        ),
        (
            "mrpc",
            {"max_loss": None, "dev_file": "x"},
            "--dev_file, --data_dir: .* give --max_loss, too",
        ),
        (
            "mrpc",
            {},
            "--max_loss: is measured on a development set; give its --dev_file, or its --data_dir",
        ),
        ("squad", {"data_dir": ".", "max_query_length": 6}, "--dev_file: must be given"),
        (
            "squad",
            {"dev_file": "unanswered", "max_query_length": 6},
            "has no answers to measure a loss with; give a",
        ),
        ("ner", {"dev_file": "absent"}, "absent: no such file"),
        (
            "pretraining",
            {"dev_file": "unanswered"},
            "--max_loss: --task_name=pretraining has no metric of a dev set",
        ),
    ],
)
@pytest.mark.needs_extra("ai_edge_litert")
def test_what_cannot_be_measured(kind, flags, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paragraph = {"context": "the cat sat", "qas": [{"id": "1", "question": "who sat"}]}
    (tmp_path / "unanswered").write_text(
        json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]})
    )
    exported.make_checkpoint(tmp_path, kind)
    with pytest.raises(InputError, match=message):
        serving_model.export(exported.export_options(tmp_path, kind, **FLAGS_OF_LOSS | flags))
    assert not (tmp_path / "exports").exists()


@formats
def test_a_sentence_encoder_opens_an_export(export_format, tmp_path_factory):
    embeddings = pytest.importorskip("official_bert.extensions.embeddings.sentence_encoder")
    open_encoder = embeddings.SentenceEncoder
    made = exported.shared_export(tmp_path_factory, "embedding", export_format=export_format)
    encoder, wanted = open_encoder(str(made.path), num_threads=1), Predictor(made.path)
    texts = ["rain", "a train left the station at noon", "", "the cat " * 40]
    np.testing.assert_allclose(
        encoder.encode(texts, batch_size=3), wanted.encode(texts), atol=TOLERANCE
    )
    assert encoder.encode([]).shape == (0, 16)
    for name, value in (("pooling", "cls"), ("normalize", False), ("max_seq_length", 25)):
        with pytest.raises(InputError, match=f"{name}={value!r}: .* is an export"):
            open_encoder(str(made.path), **{name: value})
    other = exported.shared_export(tmp_path_factory, "mrpc", export_format=export_format)
    with pytest.raises(
        InputError, match="is no export of ids that gives vectors; open it with Predictor"
    ):
        open_encoder(str(other.path))
