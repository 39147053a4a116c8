"""Classifier.train is run_classifier.py on texts in memory: the same numbers, files and refusals."""

import csv
import json
import re

import numpy as np
import pytest

from official_bert import ClassificationData, Classifier, InputError, Predictor
from tests.fine_tuning_runs import figures
from tests.scripts import end_of, flag_list, run_here
from tests.shared import ROOT, in_test_long

FLAGS = {"max_seq_length": 24, "train_batch_size": 16, "learning_rate": 3e-3, "random_seed": 1}


def tickets(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Messages whose team one word tells, and which a table has to quote."""
    draws = np.random.default_rng(seed)
    fillers = ["the", "sat,", "on", '"mat"', "was\n", "a", "day\r\nin", "park;", "at", "noon."]
    texts, teams = [], list(draws.choice(["cats, dogs", "trains"], count))
    for team in teams:
        words = list(draws.choice(fillers, draws.integers(2, 9)))
        words.insert(draws.integers(len(words) + 1), {"cats, dogs": "cat", "trains": "train"}[team])
        texts.append(" ".join(words))
    return texts, [str(team) for team in teams]


def write_csv(path, texts, labels):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["number", "message", "team"], *zip(range(len(texts)), texts, labels, strict=True)])
    return path


def test_a_csv_of_tickets_becomes_a_classifier_as_by_the_script(base, tmp_path):
    train, dev = tickets(192, 1), tickets(48, 2)
    files = {
        f"{name}_file": write_csv(tmp_path / f"{name}.csv", *sets) for name, sets in (("train", train), ("dev", dev))
    }
    columns = "text_a=message,label=team"
    given = FLAGS | {"num_train_epochs": 8, "model": base, "columns": columns, "task_name": "text"}
    run_here(
        "run_classifier.py", "--do_train", "--do_eval", *flag_list(output_dir=tmp_path / "script", **given, **files)
    )
    trained = Classifier.train(tmp_path / "memory", *train, dev=dev, model=base, num_train_epochs=8, **FLAGS)

    assert trained.metrics == figures(tmp_path / "script")
    assert trained.metrics["eval_accuracy"] > 0.95
    assert trained.classify("the train was on the mat")["label"] == "trains"
    assert trained(dev[0]) == Predictor(tmp_path / "script")(dev[0])
    records = [json.loads((tmp_path / name / "task.json").read_text()) for name in ("script", "memory")]
    assert records[0] == records[1]
    assert records[0]["task_name"] == "text"
    assert (tmp_path / "memory" / "labels.txt").read_text() == "cats, dogs\ntrains\n"
    assert (tmp_path / "memory" / "run.jsonl").exists()

    # The earlier name of the task reads the folder, too, and the folder of files.
    ended = end_of(
        "run_classifier.py", "--do_eval",
        *flag_list(task_name="tsv", data_dir=tmp_path, columns=columns, model=tmp_path / "memory",
                   output_dir=tmp_path / "again"),
    )  # fmt: skip
    assert ended.status == 0, ended.sentence
    assert "its results are those of another task" not in ended.log
    assert figures(tmp_path / "again")["eval_accuracy"] == trained.metrics["eval_accuracy"]


PAIRS = [("the cat", "sat"), ("a train", "left")]


@pytest.mark.parametrize(
    ("labels", "label_type"), [([0, 1], "single"), ([0.5, 2], "score"), ([{"x", "y, z"}, ()], "multi")]
)
def test_the_labels_tell_their_type(labels, label_type):
    data = ClassificationData.from_lists(PAIRS, labels)
    assert data.label_type == label_type
    assert data.rows("train")[1].fields[:2] == ["the cat", "sat"]


@pytest.mark.parametrize(
    ("texts", "labels", "answer", "metric"),
    [
        (PAIRS, [{"x", "y, z", "a = b"}, ()], {"labels", "probabilities"}, "eval_f1_a = b"),
        *in_test_long(
            (PAIRS, [0, 1], {"label", "probabilities"}, "eval_accuracy"),
            (["the cat", "a train"], [0.5, 2], {"score"}, "eval_spearman"),
        ),
    ],
)
def test_pairs_scores_and_label_lists(base, tmp_path, texts, labels, answer, metric):
    data = ClassificationData.from_lists(texts * 4, labels * 4)
    flags = FLAGS | {"train_batch_size": 4, "num_train_epochs": 1}
    trained = Classifier.train(tmp_path / "model", data, dev=data, model=str(base), **flags)
    assert set(trained(texts[0])) == answer
    assert metric in trained.metrics
    (kept,) = trained._model.trained.facts["metrics"].values()
    assert kept.items() <= trained.metrics.items()
    assert metric in kept


@pytest.mark.needs_extra("pandas")
def test_columns_of_a_frame():
    import pandas

    frame = pandas.DataFrame({"a": ["x", None], "b": ["y", "z"], "n": [1, 2], "s": [0.5, 1.5]})
    data = ClassificationData.from_frame(frame, text=("a", "b"), label="n")
    assert data == ([["x", "y"], [None, "z"]], [1, 2])
    assert [row.fields for row in data.rows("train")][:2] == [["text_a", "text_b", "label"], ["x", "y", 1]]
    found = [ClassificationData.from_frame(frame, "b", name) for name in "nsa"]
    assert [data.label_type for data in found] == ["single", "score", "single"]
    assert found[2].labels == ["x", None]


NO_FLAG = "Classifier.train takes no such flag"


@pytest.mark.parametrize(
    ("texts", "labels", "flags", "message"),
    [
        (["a"], ["x", "y"], {}, "1 texts and 2 labels are given; give each text its label"),
        (["a", ("b", "c")], ["x", "y"], {}, "^train: row 2: has 2 texts and the first row 1; give as many"),
        (["a", 3], ["x", "y"], {}, "^train: row 2: --columns=text_a=text_a is no text; give it a text"),
        (["a", "b"], ["x", float("nan")], {}, "^train: row 2: has no label"),
        (["a", "b"], [[1, 0, 1], [0, 1, 0]], {}, "^train: each example has 3 zeros or ones in place of labels; give"),
        (["a", "b"], ["a\nb", "c"], {}, r"^train: the label 'a\\nb' has a tab or a line end, which the files of"),
        (["a", "b"], ["x", "x"], {}, "train: all examples have the label 'x'"),
        ([], [], {}, "^train: holds no example"),
        (["a"], ["x"], {"lerning_rate": 1}, f"^lerning_rate: {NO_FLAG}; did you mean learning_"),
        (["a"], ["x"], {"data_dir": "d"}, f"^data_dir: {NO_FLAG}; run_classifier.py --helpfull"),
        (["a"], None, {}, "^labels: give the labels of the texts, or texts as ClassificationData without labels"),
        (ClassificationData(["a"], ["x"]), ["x"], {}, "^labels: give the labels of the texts"),
        (["a"], ["x"], {"dev": ["a", "b"]}, r"^dev: must be a pair, \(texts, labels\), or ClassificationData"),
        (["a"], ["x"], {"dev": ("a", "b")}, "^dev: must be a pair"),
        (["a"], ["x"], {"learning_rate": "1e-4"}, "^learning_rate='1e-4': must be a number"),
        (["a"], ["x"], {"class_weights": "1,2"}, "^class_weights='1,2': must be a list of texts"),
        (["a"], ["x"], {"train_batch_size": 0}, "^train_batch_size=0: must be at least 1"),
    ],
)
def test_what_cannot_be_trained_on(base, tmp_path, texts, labels, flags, message):
    with pytest.raises(InputError, match=message):
        Classifier.train(tmp_path / "model", texts, labels, model=base, **flags)
    assert not (tmp_path / "model").exists()


def test_the_three_lines_of_the_readme(base, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = (found for found in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "Classifier.train" in found)
    exec(block, {"folder": base})
    assert re.match(r"\{'label': '(animal|vehicle)', 'score': 0\.\d+\}$", capsys.readouterr().out.splitlines()[-1])
