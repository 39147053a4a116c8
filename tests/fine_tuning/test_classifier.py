"""Classifier.train is run_classifier.py on texts in memory: the same numbers, files and
refusals.
"""

import contextlib
import csv
import dataclasses
import json
import re

import numpy as np
import pytest

from official_bert import ClassificationData, Classifier, InputError, Predictor
from official_bert.fine_tuning import earlier_training as earlier
from official_bert.options.fine_tuning import ClassificationOptions
from official_bert.training import run_log
from official_bert.training.trainer import Trainer
from tests.fine_tuning_runs import figures
from tests.scripts import end_of, flag_list, run_here
from tests.shared import ROOT, in_test_long
from tests.training.counted_steps import count_steps

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
        writer.writerows(
            [["number", "message", "team"], *zip(range(len(texts)), texts, labels, strict=True)]
        )
    return path


def test_a_csv_of_tickets_becomes_a_classifier_as_by_the_script(base, tmp_path):
    train, dev = tickets(192, 1), tickets(48, 2)
    files = {
        f"{name}_file": write_csv(tmp_path / f"{name}.csv", *sets)
        for name, sets in (("train", train), ("dev", dev))
    }
    columns = {"text_a_column": "message", "label_column": "team"}
    given = FLAGS | columns | {"num_train_epochs": 8, "model": base, "task_name": "text"}
    run_here(
        "run_classifier.py",
        "--do_train",
        "--do_eval",
        *flag_list(output_dir=tmp_path / "script", **given, **files),
    )
    trained = Classifier.train(
        tmp_path / "memory",
        *train,
        dev=dev,
        model=base,
        num_train_epochs=8,
        **FLAGS,
    )

    assert trained.metrics == figures(tmp_path / "script")
    assert trained.metrics["eval_accuracy"] > 0.95
    assert trained.classify("the train was on the mat")["label"] == "trains"
    assert trained(dev[0]) == Predictor(tmp_path / "script")(dev[0])
    records = [
        json.loads((tmp_path / name / "task.json").read_text()) for name in ("script", "memory")
    ]
    assert records[0] == records[1]
    assert records[0]["task_name"] == "text"
    assert (tmp_path / "memory" / "labels.txt").read_text() == "cats, dogs\ntrains\n"
    assert (tmp_path / "memory" / "run.jsonl").exists()

    # The earlier name of the task reads the folder, too, and the folder of files.
    ended = end_of(
        "run_classifier.py", "--do_eval",
        *flag_list(task_name="tsv", data_dir=tmp_path, model=tmp_path / "memory", **columns,
                   output_dir=tmp_path / "again"),
    )  # fmt: skip
    assert ended.status == 0, ended.sentence
    assert "its results are those of another task" not in ended.log
    assert figures(tmp_path / "again")["eval_accuracy"] == trained.metrics["eval_accuracy"]


PAIRS = [("the cat", "sat"), ("a train", "left")]


@pytest.mark.parametrize(
    ("labels", "label_type"),
    [([0, 1], "single"), ([0.5, 2], "score"), ([{"x", "y, z"}, ()], "multi")],
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
    (kept,) = trained.model.trained.checkpoint_metadata["metrics"].values()
    assert kept.items() <= trained.metrics.items()
    assert metric in kept


@pytest.mark.parametrize(
    ("labels", "is_warned_of"),
    [([0.0, 1.0, 1], True), ([0.5, 1.0, 1], False), ([0, 1, 1], False), (["a", 1.0], False)],
)
def test_whole_numbers_with_a_point_may_be_classes(labels, is_warned_of, caplog):
    ClassificationData.from_lists("abc"[: len(labels)], labels).warn_of_whole_scores()
    message = (
        "labels: numbers with a point are learnt as scores, and all of these are whole; pass whole "
        "numbers or"
    )
    assert [message in text for text in caplog.messages] == [True] * is_warned_of


@pytest.mark.needs_extra("pandas")
def test_columns_of_a_frame():
    import pandas

    frame = pandas.DataFrame({"a": ["x", None], "b": ["y", "z"], "n": [1, 2], "s": [0.5, 1.5]})
    data = ClassificationData.from_frame(frame, text=("a", "b"), label="n")
    assert data == ([["x", "y"], [None, "z"]], [1, 2])
    assert [row.fields for row in data.rows("train")][:2] == [
        ["text_a", "text_b", "label"],
        ["x", "y", 1],
    ]
    found = [ClassificationData.from_frame(frame, "b", name) for name in "nsa"]
    assert [data.label_type for data in found] == ["single", "score", "single"]
    assert found[2].labels == ["x", None]


NO_FLAG = "Classifier.train takes no such flag"


@pytest.mark.parametrize(
    ("texts", "labels", "flags", "message"),
    [
        (["a"], ["x", "y"], {}, "1 texts and 2 labels are given; give each text its label"),
        (
            ["a", ("b", "c")],
            ["x", "y"],
            {},
            "^train: row 2: has 2 texts and the first row 1; give as many",
        ),
        (
            ["a", 3],
            ["x", "y"],
            {},
            "^train: row 2: --text_a_column=text_a is not a text; give it a text",
        ),
        (["a", "b"], ["x", float("nan")], {}, "^train: row 2: has no label"),
        (
            ["a", "b"],
            [[1, 0, 1], [0, 1, 0]],
            {},
            "^train: each example has 3 zeros or ones in place of labels; give",
        ),
        (
            ["a", "b"],
            ["a\nb", "c"],
            {},
            r"^train: the label 'a\\nb' has a tab or a line end, which the files of",
        ),
        (["a", "b"], ["x", "x"], {}, "train: all examples have the label 'x'"),
        ([], [], {}, "^train: holds no example"),
        (["a"], ["x"], {"lerning_rate": 1}, f"^lerning_rate: {NO_FLAG}; did you mean learning_"),
        (["a"], ["x"], {"data_dir": "d"}, f"^data_dir: {NO_FLAG}; run_classifier.py --helpfull"),
        (
            ["a"],
            None,
            {},
            "^labels: give the labels of the texts, or texts as ClassificationData without labels",
        ),
        (ClassificationData(["a"], ["x"]), ["x"], {}, "^labels: give the labels of the texts"),
        (
            ["a"],
            ["x"],
            {"dev": ["a", "b"]},
            r"^dev: must be a pair, \(texts, labels\), or ClassificationData",
        ),
        (["a"], ["x"], {"dev": ("a", "b")}, "^dev: must be a pair"),
        (
            ["a", "b"],
            ["x", "y"],
            {"dev": ([("a", "b")], ["x"])},
            "^dev: one of the two sets has pairs of texts",
        ),
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
    (block,) = (
        found
        for found in re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
        if "Classifier.train" in found
    )
    exec(block, {"folder": base})
    assert re.match(
        r"\{'label': '(animal|vehicle)', 'score': 0\.\d+\}$",
        capsys.readouterr().out.splitlines()[-1],
    )


# === The folder of an earlier training ===

ROWS = ClassificationData.from_lists(["a cat", "a train"] * 8, ["x", "y"] * 8).rows("train")


def earlier_training(folder, **flags):
    """The log and the list of checkpoints of a training in a folder; returns the flags that it
    had.
    """
    options = ClassificationOptions(
        task_name="text",
        output_dir=str(folder),
        do_train=True,
        **flags,
    )
    written = dataclasses.asdict(options)
    folder.mkdir()
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-2"\n')
    line = {
        "flags": written,
        "num_updates": 2,
        "first_step": 0,
        earlier.DATA_FACT: earlier.rows_digest(ROWS),
    }
    run_log.write(str(folder), run_log.START, line)
    return written


def differences(folder, flags, rows=ROWS):
    digest = earlier.rows_digest(rows)
    return earlier.find_differences(str(folder), flags, digest, ClassificationOptions)


def test_other_data_and_flags_than_those_of_the_folder_are_told(tmp_path):
    flags = earlier_training(tmp_path / "a", learning_rate=1e-4)
    assert differences(tmp_path / "a", flags) == ""
    assert differences(tmp_path / "a", flags | {"eval_batch_size": 9}) == ""
    other = ClassificationData.from_lists(["a cat", "a train"] * 8, ["y", "x"] * 8).rows("train")
    assert differences(tmp_path / "a", flags | {"learning_rate": 1e-3}, other) == (
        "other texts or labels, --learning_rate=0.001 (0.0001 before)"
    )
    (tmp_path / "a" / "run.jsonl").unlink()
    assert differences(tmp_path / "a", flags).startswith("other data and flags")


def test_a_folder_of_another_training_is_refused_resumed_or_replaced(base, tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, "step_function", count_steps)  # its numbers are not the subject
    texts, labels = [["a cat", "a train"] * 8, ["x", "y"] * 8]
    flags = {
        "max_seq_length": 8,
        "train_batch_size": 8,
        "num_train_epochs": 1,
        "random_seed": 1,
        "model": base,
    }
    folder = tmp_path / "model"

    def train(labels, **others):
        return Classifier.train(folder, texts, labels, **flags | others)

    def trainings():
        return [
            (line["first_step"], line["num_updates"])
            for line in run_log.read(str(folder), run_log.START)
        ]

    train(labels)
    train(labels)
    assert trainings() == [(0, 2), (2, 0)]
    (folder / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for other, words in ((labels[::-1], {}), (labels, {"num_train_epochs": 2})):
        with pytest.raises(
            InputError,
            match=r"model: holds a model that was trained differently: .*overwrite=True",
        ):
            train(other, **words)
    with pytest.raises(InputError, match="overwrite, resume: exclude each other"):
        train(labels, overwrite=True, resume=True)
    with pytest.raises(InputError, match="all examples have the label 'x'"):
        train(["x"] * 16, overwrite=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before

    train(labels, num_train_epochs=2, resume=True)
    assert trainings() == [(0, 2), (2, 0), (2, 2)]
    train(["z", "w"] * 8, overwrite=True)
    assert trainings() == [(0, 2)]
    assert (folder / "labels.txt").read_text() == "w\nz\n"
    assert (folder / "notes.txt").read_text() == "mine"
    assert not list(folder.glob(".replaced*"))


@pytest.mark.parametrize(("is_refused", "expected"), [(True, "earlier"), (False, "new")])
def test_a_call_that_was_killed_while_it_replaced_a_training_is_finished_by_the_next(
    tmp_path, is_refused, expected
):
    aside = tmp_path / ".replaced"
    aside.mkdir()
    (aside / "run.jsonl").write_text("earlier")
    (tmp_path / "run.jsonl").write_text("new")
    assert earlier.was_killed_while_replacing(str(tmp_path))
    with contextlib.suppress(InputError), earlier.replaced(str(tmp_path), holds_other=False):
        if is_refused:
            raise InputError("a refusal")
    assert (tmp_path / "run.jsonl").read_text() == expected
    assert not earlier.was_killed_while_replacing(str(tmp_path))
