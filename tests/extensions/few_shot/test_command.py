"""Tests of run_few_shot and Classifier.few_shot: what they train, write, resume and refuse."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from official_bert import Classifier, InputError, Predictor, catalog
from official_bert.checkpoints import open_checkpoint
from official_bert.extensions.few_shot import command
from tests.fine_tuning_runs import write_model
from tests.scripts import end_of, flag_list, run_here

TRAIN = [
    ("the cat sat on the mat .", "home"),
    ("the cat sat", "home"),
    ("a cat on a mat", "home"),
    ("a train left the station", "travel"),
    ("the driver waved his hand", "travel"),
    ("a train at noon", "travel"),
]
DEV = [("the mat", "home"), ("the station", "travel"), ("a cat sat", "home")]
TEXTS = [text for text, _ in DEV]


def write_table(path: pathlib.Path, rows):
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> pathlib.Path:
    """A folder with a model, tables, and the classifier `out` that was trained on them."""
    folder = tmp_path_factory.mktemp("few_shot")
    write_model(folder / "bert", "", 2)
    write_table(folder / "train.tsv", TRAIN)
    write_table(folder / "dev.tsv", DEV)
    run_here("run_few_shot", *flags(folder, dev_file=folder / "dev.tsv"))
    return folder


def flags(folder: pathlib.Path, **changes) -> list[str]:
    values = {
        "train_file": folder / "train.tsv",
        "model": folder / "bert",
        "output_dir": folder / "out",
        "num_pairs": 4,
        "max_seq_length": 16,
        "learning_rate": 1e-3,
    }
    return flag_list(**values | changes)


def vectors_of(encoder, texts) -> np.ndarray:
    """The vectors by another path: the class of sentence vectors."""
    encode = catalog.load(catalog.public_names()["SentenceEncoder"])
    return encode(str(encoder), max_seq_length=16).encode(list(texts))


def test_the_classifier_is_a_logistic_regression_on_the_vectors(work):
    encoder = work / "out" / "encoder"
    texts, labels = zip(*TRAIN, strict=True)
    regression = LogisticRegression(max_iter=1000).fit(vectors_of(encoder, texts), labels)
    expected = regression.predict_proba(vectors_of(encoder, TEXTS))

    answers = Predictor(str(work / "out"))(TEXTS)

    assert regression.classes_.tolist() == ["home", "travel"]
    probabilities = [list(answer["probabilities"].values()) for answer in answers]
    np.testing.assert_allclose(probabilities, expected, atol=1e-3)
    right = [answer["label"] == label for answer, (_, label) in zip(answers, DEV, strict=True)]
    results = (work / "out" / "eval_results.txt").read_text()
    assert f"eval_accuracy = {np.float32(np.mean(right))!s}\n" in results


def test_the_encoder_is_trained_on_pairs_of_labels(work):
    rows = [json.loads(line) for line in (work / "out" / "pairs.jsonl").open()]
    labels = dict(TRAIN)
    assert len(rows) == len(TRAIN) * 4 * 2
    for row in rows:
        assert row["label"] == (labels[row["anchor"]] == labels[row["positive"]])
    before = open_checkpoint(str(work / "bert"))
    after = open_checkpoint(str(work / "out"))
    name = "bert/encoder/layer_0/attention/self/query/kernel"
    assert np.abs(after.read(name) - before.read(name)).max() > 1e-3


def test_exports_answer_as_the_folder(work, tmp_path):
    expected = Predictor(str(work / "out"))(TEXTS)
    for name, options in (("tensors", {}), ("text", {"export_text": True})):
        target = tmp_path / name
        export = flag_list(model=work / "out", export_dir=target, **options)
        run_here("export_saved_model", *export)
        for answer, wanted in zip(Predictor(str(target))(TEXTS), expected, strict=True):
            assert answer["label"] == wanted["label"]
            assert answer["probabilities"] == pytest.approx(wanted["probabilities"], abs=1e-5)


IN_A_CLEAN_PROCESS = """
import json, sys
import tensorflow as tf

served = tf.saved_model.load(sys.argv[1]).signatures["serving_text"]
outputs = served(text_a=tf.constant(json.loads(sys.argv[2])))
print(json.dumps(outputs["probabilities"].numpy().tolist()))
print([name for name in sys.modules if name.startswith("official_bert")])
"""


def test_a_saved_model_reads_text_without_the_package(work, tmp_path):
    export = flag_list(model=work / "out", export_dir=tmp_path / "export", export_text=True)
    run_here("export_saved_model", *export)
    moved = shutil.copytree(tmp_path / "export/1", tmp_path / "moved")
    finished = subprocess.run(
        [sys.executable, "-c", IN_A_CLEAN_PROCESS, moved, json.dumps(TEXTS)],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    probabilities, modules = finished.stdout.splitlines()
    assert modules == "[]"
    expected = [
        [*answer["probabilities"].values()] for answer in Predictor(str(work / "out"))(TEXTS)
    ]
    np.testing.assert_allclose(json.loads(probabilities), expected, atol=1e-6)


def test_run_classifier_evaluates_and_does_not_train_it(work, tmp_path):
    values = {
        "task_name": "few_shot",
        "model": work / "out",
        "dev_file": work / "dev.tsv",
        "output_dir": tmp_path / "evaluated",
    }
    run_here("run_classifier", *flag_list(**values, do_eval=True))
    name = "eval_results.txt"
    assert (tmp_path / "evaluated" / name).read_text() == (work / "out" / name).read_text()
    training = flag_list(**values, train_file=work / "train.tsv", do_train=True)
    ended = end_of("run_classifier", *training)
    assert ended.status == 1
    assert "is trained by official-bert run_few_shot; leave --do_train out" in ended.sentence


def test_the_same_command_goes_on_and_another_is_refused(work):
    weights = open_checkpoint(str(work / "out")).read("output_weights")
    run_here("run_few_shot", *flags(work))
    np.testing.assert_array_equal(
        open_checkpoint(str(work / "out")).read("output_weights"), weights
    )
    for changes in ({"num_pairs": 5}, {"train_file": work / "dev.tsv"}):
        if "train_file" in changes:
            write_table(work / "dev.tsv", [*DEV, ("noon", "travel")])
        ended = end_of("run_few_shot", *flags(work, **changes))
        assert ended.status == 1
        assert "holds a model that was trained on other examples" in ended.sentence


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": "missing"}, "missing"),
        ({"dev_file": "missing.tsv"}, "missing.tsv"),
        ({"train_file": "missing.tsv"}, "missing.tsv"),
        ({"dev_file": "others.tsv"}, "others.tsv"),
        ({"train_file": "empty.tsv"}, "empty.tsv"),
    ],
)
def test_a_wrong_path_is_named_before_anything_is_written(work, tmp_path, changes, sentence):
    (tmp_path / "empty.tsv").write_text("")
    write_table(tmp_path / "others.tsv", [("noon", "food")])
    paths = {name: tmp_path / path for name, path in changes.items()}
    ended = end_of("run_few_shot", *flags(work, **paths, output_dir=tmp_path / "out"))
    assert ended.status == 1
    assert sentence in ended.sentence
    assert not (tmp_path / "out").exists()


def test_the_folder_of_another_training_is_refused(work, tmp_path):
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-1"\n')
    ended = end_of("run_few_shot", *flags(work, output_dir=tmp_path))
    assert ended.status == 1
    assert "holds the checkpoints of another training" in ended.sentence


def test_ranking_needs_no_pairs_of_two_labels(work, tmp_path):
    changes = {"loss": "multiple_negatives_ranking", "output_dir": tmp_path / "ranking"}
    run_here("run_few_shot", *flags(work, train_batch_size=2, **changes))
    rows = [json.loads(line) for line in (tmp_path / "ranking" / "pairs.jsonl").open()]
    assert len(rows) == len(TRAIN) * 4
    assert rows[0].keys() == {"anchor", "positive"}


def test_python_trains_without_the_encoder_and_replaces_a_classifier(work, tmp_path):
    texts, labels = zip(*TRAIN, strict=True)
    settings = {"model": work / "bert", "train_encoder": False, "max_seq_length": 16, "verbose": 0}
    dev = (TEXTS, [label for _, label in DEV])
    classifier = Classifier.few_shot(tmp_path / "few", texts, labels, dev=dev, **settings)
    regression = LogisticRegression(max_iter=1000).fit(vectors_of(work / "bert", texts), labels)
    answers = classifier.classify(TEXTS)
    assert [answer["label"] for answer in answers] == regression.predict(
        vectors_of(work / "bert", TEXTS)
    ).tolist()
    assert 0 <= classifier.metrics["eval_accuracy"] <= 1
    assert not (tmp_path / "few" / "encoder").exists()

    (tmp_path / "few" / "notes.txt").write_text("mine")
    others = [label.upper() for label in labels]
    with pytest.raises(InputError, match="trained on other examples or with"):
        Classifier.few_shot(tmp_path / "few", texts, others, **settings)
    replaced = Classifier.few_shot(tmp_path / "few", texts, others, overwrite=True, **settings)
    assert replaced.classify("the mat")["label"] in ("HOME", "TRAVEL")
    assert (tmp_path / "few" / "notes.txt").exists()  # what others have put there stays
    assert "few_shot" in dir(Classifier)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"model": None}, "model: is missing"),
        (
            {"num_pair": 3},
            "num_pair: Classifier.few_shot takes no such flag; did you mean num_pairs",
        ),
        ({"num_pairs": 0}, "num_pairs"),
        ({"labels": ["x"]}, "6 texts and 1 labels are given"),
        ({"labels": ["x"] * 6}, "all examples have the label 'x'"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(work, tmp_path, arguments, sentence):
    texts, labels = zip(*TRAIN, strict=True)
    settings = {"texts": texts, "labels": labels, "model": work / "bert", **arguments}
    with pytest.raises(InputError, match=sentence):
        Classifier.few_shot(tmp_path / "no", **settings)
    assert not (tmp_path / "no").exists()


def test_a_model_with_a_projection_is_refused(work, tmp_path):
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"anchor": "the cat", "positive": "a cat", "label": 1.0}\n' * 16)
    projected = flag_list(
        train_file=pairs,
        do_train=True,
        loss="cosine_similarity",
        projection=4,
        model=work / "bert",
        output_dir=tmp_path / "projected",
        train_batch_size=4,
        max_seq_length=16,
    )
    run_here("run_embeddings", *projected)
    changes = {"model": tmp_path / "projected", "output_dir": tmp_path / "no"}
    for train_encoder in (False, True):
        ended = end_of("run_few_shot", *flags(work, train_encoder=train_encoder, **changes))
        assert ended.status == 1
        assert "has a layer behind the pooling" in ended.sentence
        assert not (tmp_path / "no").exists()


def test_prompts_are_left_out_with_a_warning(work, tmp_path):
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"anchor": text, "positive": label} for text, label in TRAIN]
    pairs.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    prompted = flag_list(
        train_file=pairs,
        do_train=True,
        query_prompt="noon ",
        document_prompt="a train ",
        model=work / "bert",
        output_dir=tmp_path / "prompted",
        train_batch_size=4,
        max_seq_length=16,
    )
    run_here("run_embeddings", *prompted)
    changes = {"model": tmp_path / "prompted", "output_dir": tmp_path / "few"}
    ended = end_of("run_few_shot", *flags(work, **changes))
    assert ended.status == 0
    assert "has prompts. A few-shot classifier puts none before its texts" in ended.log
    settings = json.loads((tmp_path / "few/encoder/task.json").read_text())["settings"]
    assert not any(settings["prompts"].values())
    texts, labels = zip(*TRAIN, strict=True)
    # The encoder of the classifier has no prompts, so that its vectors are those of the classifier.
    vectors = vectors_of(tmp_path / "few/encoder", texts)
    regression = LogisticRegression(max_iter=1000).fit(vectors, labels)
    expected = regression.predict_proba(vectors_of(tmp_path / "few/encoder", TEXTS))
    answers = Predictor(str(tmp_path / "few"))(TEXTS)
    probabilities = [list(answer["probabilities"].values()) for answer in answers]
    np.testing.assert_allclose(probabilities, expected, atol=1e-3)


def test_the_training_of_the_encoder_needs_its_command(work, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "_TRAINING", "run_nothing")
    ended = end_of("run_few_shot", *flags(work, output_dir=tmp_path / "no"))
    assert ended.status == 1
    assert "needs run_nothing of the extension embeddings, which is not there" in ended.sentence
    assert not (tmp_path / "no").exists()
