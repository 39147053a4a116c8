"""The loss of an export in 8 bits is that of the task's metric, and too large a one is refused."""

import json

import numpy as np
import pytest

from official_bert import Predictor
from official_bert.extensions.runtimes import quality
from official_bert.extensions.runtimes.opening import RUNTIMES
from official_bert.io.errors import InputError
from official_bert.serving import model as serving_model
from official_bert.tasks.classification.glue import MrpcProcessor
from tests.extensions.runtimes.converted import read_conversion, write_development_sets
from tests.serving import exported

FLAGS_OF_LOSS = {"export_format": "litert", "dtype": "int8", "max_loss": 0.5}


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
