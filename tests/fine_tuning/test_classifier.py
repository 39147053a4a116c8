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
from official_bert.fine_tuning import python_training
from official_bert.fine_tuning.classifier import few_texts_flags
from official_bert.fine_tuning.finetuner import Score
from official_bert.io import progress
from official_bert.options.fine_tuning import ClassificationOptions
from official_bert.training import run_log
from official_bert.training.trainer import Trainer
from tests.fine_tuning_runs import figures
from tests.scripts import end_of, flag_list, run_here
from tests.shared import ROOT, in_test_long
from tests.training.counted_steps import count_steps

FLAGS = {
    "max_seq_length": 24,
    "train_batch_size": 16,
    "learning_rate": 3e-3,
    "random_seed": 1,
    "optimizer_type": "adamw",
}
FILLERS = ["the", "sat,", "on", '"mat"', "was\n", "a", "day\r\nin", "park;", "at", "noon."]
WORDS_BY_TEAM = {"cats, dogs": "cat", "trains": "train"}


def draw_tickets(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Messages whose team one word tells, and which a table has to quote."""
    random = np.random.default_rng(seed)
    teams = random.choice(list(WORDS_BY_TEAM), count).tolist()
    texts = []
    for team in teams:
        num_fillers = random.integers(2, 9)
        words = list(random.choice(FILLERS, num_fillers))
        place = random.integers(len(words) + 1)
        words.insert(place, WORDS_BY_TEAM[team])
        texts.append(" ".join(words))
    return texts, teams


def write_csv(path, texts, labels):
    numbers = range(len(texts))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["number", "message", "team"])
        writer.writerows(zip(numbers, texts, labels, strict=True))
    return path


def read_record(folder):
    """The task that a folder records."""
    return json.loads((folder / "task.json").read_text())


def test_a_csv_of_tickets_becomes_a_classifier_as_by_the_script(base, tmp_path):
    train = draw_tickets(192, 1)
    dev = draw_tickets(48, 2)
    dev_texts, _ = dev
    script_folder = tmp_path / "script"
    memory_folder = tmp_path / "memory"
    columns = {"text_a_column": "message", "label_column": "team"}
    run_here(
        "run_classifier.py",
        "--do_train",
        "--do_eval",
        *flag_list(
            output_dir=script_folder,
            train_file=write_csv(tmp_path / "train.csv", *train),
            dev_file=write_csv(tmp_path / "dev.csv", *dev),
            num_train_epochs=8,
            model=base,
            task_name="text",
            **FLAGS,
            **columns,
        ),
    )
    trained = Classifier.train(
        memory_folder,
        *train,
        dev=dev,
        model=base,
        num_train_epochs=8,
        **FLAGS,
    )

    assert trained.metrics == figures(script_folder)
    assert repr(trained).startswith(
        f"Classifier(folder={str(memory_folder)!r}, task='text', labels='2: cats, dogs, trains', "
        "texts='text_a', max_seq_length=24, eval_accuracy="
    )
    assert "<tr><th>task</th><td>text</td></tr>" in trained._repr_html_()
    accuracy = trained.metrics["eval_accuracy"]
    assert accuracy > 0.95
    answer = trained.classify("the train was on the mat")
    assert answer["label"] == "trains"
    predictor = Predictor(script_folder)
    assert trained(dev_texts) == predictor(dev_texts)
    record = read_record(memory_folder)
    script_record = read_record(script_folder)
    # The columns of a set in memory are not those of the user.
    assert script_record["settings"].pop("columns") == {"text_a": "message", "label": "team"}
    assert record == script_record
    assert record["task_name"] == "text"
    labels = (memory_folder / "labels.txt").read_text()
    assert labels == "cats, dogs\ntrains\n"
    assert (memory_folder / "run.jsonl").exists()

    # The earlier name of the task reads the folder, too, and the folder of files.
    evaluation = end_of(
        "run_classifier.py",
        "--do_eval",
        *flag_list(
            task_name="tsv",
            data_dir=tmp_path,
            model=memory_folder,
            output_dir=tmp_path / "again",
            **columns,
        ),
    )
    assert evaluation.status == 0, evaluation.sentence
    assert "its results are those of another task" not in evaluation.log
    results = figures(tmp_path / "again")
    assert results["eval_accuracy"] == accuracy


PAIRS = [("the cat", "sat"), ("a train", "left")]


@pytest.mark.parametrize(
    ("labels", "label_type"),
    [
        ([0, 1], "single"),
        ([0.5, 2], "score"),
        ([{"x", "y, z"}, ()], "multi"),
    ],
)
def test_the_labels_tell_their_type(labels, label_type):
    data = ClassificationData.from_lists(PAIRS, labels)
    assert data.label_type == label_type
    _header, first_row, *_ = data.rows("train")
    text_a, text_b, *_ = first_row.fields
    assert [text_a, text_b] == ["the cat", "sat"]


@pytest.mark.parametrize(
    ("texts", "labels", "answer", "metric"),
    [
        (
            PAIRS,
            [{"x", "y, z", "a = b"}, ()],
            {"labels", "probabilities"},
            "eval_f1_a = b",
        ),
        *in_test_long(
            (
                PAIRS,
                [0, 1],
                {"label", "probabilities"},
                "eval_accuracy",
            ),
            (
                ["the cat", "a train"],
                [0.5, 2],
                {"score"},
                "eval_spearman",
            ),
        ),
    ],
)
def test_pairs_scores_and_label_lists(base, tmp_path, texts, labels, answer, metric):
    data = ClassificationData.from_lists(texts * 4, labels * 4)
    flags = FLAGS | {"train_batch_size": 4, "num_train_epochs": 1}
    trained = Classifier.train(tmp_path / "model", data, dev=data, model=str(base), **flags)
    assert set(trained(texts[0])) == answer
    assert metric in trained.metrics
    metadata = trained.model.trained.checkpoint_metadata
    (recorded_metrics,) = metadata["metrics"].values()
    assert recorded_metrics.items() <= trained.metrics.items()
    assert metric in recorded_metrics


@pytest.mark.parametrize(
    ("labels", "num_warnings"),
    [
        pytest.param([0.0, 1.0, 1], 1, id="whole floats"),
        pytest.param([0.5, 1.0, 1], 0, id="a fraction"),
        pytest.param([0, 1, 1], 0, id="integers"),
        pytest.param(["a", 1.0], 0, id="a text"),
    ],
)
def test_whole_numbers_with_a_point_may_be_classes(labels, num_warnings, caplog):
    texts = "abc"[: len(labels)]
    data = ClassificationData.from_lists(texts, labels)
    data.warn_of_whole_scores()
    message = (
        "labels: numbers with a point are learnt as scores, and all of these are whole; pass whole "
        "numbers or"
    )
    assert len(caplog.messages) == num_warnings
    assert all(message in text for text in caplog.messages)


@pytest.mark.parametrize(
    ("num_texts", "flags", "chosen"),
    [
        pytest.param(
            32,
            {},
            {
                "train_batch_size": 16,
                "num_train_epochs": 100,
                "optimizer_type": "adamw_bias_correction",
            },
            id="200 updates",
        ),
        pytest.param(
            199,
            {"train_batch_size": 8, "optimizer_type": "lamb"},
            {"num_train_epochs": 20},
            id="20 epochs",
        ),
        pytest.param(
            199,
            {"num_train_epochs": 3},
            {"train_batch_size": 16, "optimizer_type": "adamw_bias_correction"},
            id="typed epochs",
        ),
        pytest.param(
            340,
            {},
            {
                "train_batch_size": 16,
                "num_train_epochs": 10,
                "optimizer_type": "adamw_bias_correction",
            },
            id="200 updates in 10 epochs",
        ),
        pytest.param(
            999,
            {"train_batch_size": 8},
            {"num_train_epochs": 3, "optimizer_type": "adamw_bias_correction"},
            id="at least 3 epochs",
        ),
        pytest.param(1000, {}, {}, id="many texts"),
    ],
)
def test_few_texts_are_trained_on_for_longer(num_texts, flags, chosen, caplog):
    caplog.set_level("INFO", logger="absl")
    assert few_texts_flags(num_texts, flags) == chosen
    assert len(caplog.messages) == bool(chosen)
    for name, value in chosen.items():
        assert f"{name}={value!r}" in caplog.text


@pytest.mark.needs_extra("pandas")
def test_columns_of_a_frame():
    import pandas

    frame = pandas.DataFrame(
        {
            "a": ["x", None],
            "b": ["y", "z"],
            "n": [1, 2],
            "s": [0.5, 1.5],
        }
    )
    pairs = ClassificationData.from_frame(frame, text=("a", "b"), label="n")
    assert pairs == ([["x", "y"], [None, "z"]], [1, 2])
    header, first_row, *_ = pairs.rows("train")
    assert header.fields == ["text_a", "text_b", "label"]
    assert first_row.fields == ["x", "y", 1]

    integers = ClassificationData.from_frame(frame, "b", "n")
    assert integers.label_type == "single"
    floats = ClassificationData.from_frame(frame, "b", "s")
    assert floats.label_type == "score"
    one_hot = pandas.DataFrame({"t": ["x", "y"], "p": [1, 0], "q": [False, True]})
    assert ClassificationData.from_frame(one_hot, "t", ["p", "q"]).labels == ["p", "q"]
    multi_hot = pandas.DataFrame({"t": ["x", "y"], "p": [1, 0], "q": [1.0, 0.0]})
    assert ClassificationData.from_frame(multi_hot, "t", ["p", "q"]).labels == [["p", "q"], []]
    with pytest.raises(InputError, match=r"^label: row 1: the column s has 1.5; give columns of"):
        ClassificationData.from_frame(frame.replace({0.5: 1}), "b", ["s", "s"])
    texts = ClassificationData.from_frame(frame, "b", "a")
    assert texts.label_type == "single"
    assert texts.labels == ["x", None]


NO_FLAG = "Classifier.train takes no such flag"


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        pytest.param(
            ["a"],
            ["x", "y"],
            "1 texts and 2 labels are given; give each text its label",
            id="more labels than texts",
        ),
        pytest.param(
            ["a", ("b", "c")],
            ["x", "y"],
            "^train: row 2: has 2 texts and the first row 1; give as many",
            id="text and pair",
        ),
        pytest.param(
            ["a", 3],
            ["x", "y"],
            "^train: row 2: the text is not a text; give it a text",
            id="number as text",
        ),
        pytest.param(
            ["a", "b"],
            ["x", float("nan")],
            "^train: row 2: has no label",
            id="missing label",
        ),
        pytest.param(
            ["a", "b"],
            [[1, 0, 1], [0, 1, 0]],
            "^train: each example has 3 zeros or ones in place of labels; give the names of its "
            r"labels, as in a,b or a JSON list, in one column, or use "
            r"ClassificationData.from_frame\(frame, label=\['a', 'b'\]\)$",
            id="vectors of zeros and ones",
        ),
        pytest.param(
            ["a", "b"],
            ["a\nb", "c"],
            r"^train: the label 'a\\nb' has a tab or a line end, which the files of",
            id="line end in a label",
        ),
        pytest.param(
            ["a", "b"],
            ["x", "x"],
            "train: all examples have the label 'x'",
            id="one label",
        ),
        pytest.param(
            [],
            [],
            "^train: holds no example",
            id="no example",
        ),
        pytest.param(
            ["a"],
            None,
            "^labels: give the labels of the texts, or texts as ClassificationData without labels",
            id="no labels",
        ),
        pytest.param(
            ClassificationData(["a"], ["x"]),
            ["x"],
            "^labels: give the labels of the texts",
            id="labels twice",
        ),
    ],
)
def test_data_that_cannot_be_trained_on(base, tmp_path, texts, labels, message):
    folder = tmp_path / "model"
    with pytest.raises(InputError, match=message):
        Classifier.train(folder, texts, labels, model=base)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("epochs", 3, f"^epochs: {NO_FLAG}; did you mean num_train_epochs"),
        ("batch_size", 3, f"^batch_size: {NO_FLAG}; did you mean train_batch_size"),
        ("lerning_rate", 1, f"^lerning_rate: {NO_FLAG}; did you mean learning_"),
        ("data_dir", "d", f"^data_dir: {NO_FLAG}; run_classifier.py --helpfull"),
        (
            "dev",
            ["a", "b"],
            r"^dev: must be a pair, \(texts, labels\), ClassificationData, or a share of",
        ),
        ("dev", ("a", "b"), "^dev: must be a pair"),
        ("learning_rate", "1e-4", "^learning_rate='1e-4': must be a number"),
        ("class_weights", "1,2", "^class_weights='1,2': must be a list of texts"),
        ("train_batch_size", 0, "^train_batch_size=0: must be at least 1"),
    ],
)
def test_flags_that_cannot_be_trained_with(base, tmp_path, flag, value, message):
    folder = tmp_path / "model"
    with pytest.raises(InputError, match=message):
        Classifier.train(folder, ["a"], ["x"], model=base, **{flag: value})
    assert not folder.exists()


def test_both_sets_must_have_pairs_or_none(base, tmp_path):
    folder = tmp_path / "model"
    dev = ([("a", "b")], ["x"])
    with pytest.raises(InputError, match=r"^dev: one of the two sets has pairs of texts"):
        Classifier.train(folder, ["a", "b"], ["x", "y"], model=base, dev=dev)
    assert not folder.exists()


def test_the_example_of_the_readme_answers_rightly(base, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (block,) = [block for block in blocks if "Classifier.train" in block]
    names = {"folder": base}
    exec(block, names)
    *_, last_line = capsys.readouterr().out.splitlines()
    (expected,) = re.findall(r"# \{'label': '(\w+)', 'score': 0\.\d+\}", block)
    assert re.match(rf"\{{'label': '{expected}', 'score': 0\.\d+\}}$", last_line)
    answers = names["classifier"].classify(names["texts"])
    assert [answer["label"] for answer in answers] == names["labels"]


# === The folder of an earlier training ===

TEXTS = ["a cat", "a train"] * 8
LABELS = ["x", "y"] * 8
SWAPPED_LABELS = ["y", "x"] * 8
ROWS = ClassificationData.from_lists(TEXTS, LABELS).rows("train")


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
        run_log.ROWS_DIGEST: earlier.rows_digest(row.fields for row in ROWS),
    }
    run_log.write(str(folder), run_log.START, line)
    return written


def differences(folder, flags, rows=ROWS):
    digest = earlier.rows_digest(row.fields for row in rows)
    return earlier.find_differences(str(folder), flags, digest, ClassificationOptions)


def test_other_data_and_flags_than_those_of_the_folder_are_told(tmp_path):
    folder = tmp_path / "a"
    flags = earlier_training(folder, learning_rate=1e-4)
    assert differences(folder, flags) == ""
    assert differences(folder, flags | {"eval_batch_size": 9}) == ""
    other_rows = ClassificationData.from_lists(TEXTS, SWAPPED_LABELS).rows("train")
    other_flags = flags | {"learning_rate": 1e-3}
    assert differences(folder, other_flags, other_rows) == (
        "other texts or labels, --learning_rate=0.001 (0.0001 before)"
    )
    (folder / "run.jsonl").unlink()
    without_log = differences(folder, flags)
    assert without_log.startswith("other data and flags")


def read_files(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_folder_of_another_training_is_refused_resumed_or_replaced(base, tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, "step_function", count_steps)  # its numbers are not the subject
    flags = {
        "max_seq_length": 8,
        "train_batch_size": 8,
        "num_train_epochs": 1,
        "random_seed": 1,
        "model": base,
    }
    folder = tmp_path / "model"

    def train(labels, **changes):
        return Classifier.train(folder, TEXTS, labels, **flags | changes)

    def read_trainings():
        """The first step and the number of updates of each training."""
        starts = run_log.read(str(folder), run_log.START)
        return [(start["first_step"], start["num_updates"]) for start in starts]

    train(LABELS)
    train(LABELS)
    assert read_trainings() == [(0, 2), (2, 0)]

    (folder / "notes.txt").write_text("mine")
    files = read_files(folder)
    trained_differently = r"model: holds a model that was trained differently: .*overwrite=True"
    with pytest.raises(InputError, match=trained_differently):
        train(SWAPPED_LABELS)
    with pytest.raises(InputError, match=trained_differently):
        train(LABELS, num_train_epochs=2)
    with pytest.raises(InputError, match="overwrite, resume: exclude each other"):
        train(LABELS, overwrite=True, resume=True)
    with pytest.raises(InputError, match="all examples have the label 'x'"):
        train(["x"] * 16, overwrite=True)
    assert read_files(folder) == files

    train(LABELS, num_train_epochs=2, resume=True)
    assert read_trainings() == [(0, 2), (2, 0), (2, 2)]

    train(["z", "w"] * 8, overwrite=True)
    assert read_trainings() == [(0, 2)]
    files = read_files(folder)
    assert files["labels.txt"] == b"w\nz\n"
    assert files["notes.txt"] == b"mine"
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


@pytest.mark.parametrize("verbose", [None, 1, 0])
def test_a_training_shows_its_progress_unless_it_is_to_be_mute(
    tmp_path, monkeypatch, capsys, verbose
):
    def fine_tune(options, sets, metadata):
        steps = progress.Progress("steps", 10)
        steps(0)
        monkeypatch.setattr(progress, "MAX_SECS_BETWEEN_LINES", 0.0)
        monkeypatch.setattr(progress, "_SECS_BETWEEN_CHECKS", 0.0)
        steps(4, "loss 0.5")
        return Score("eval_accuracy", 0.75)

    monkeypatch.setattr(python_training, "fine_tune", fine_tune)
    monkeypatch.setattr(Classifier, "__init__", lambda self, folder: None)
    flags = {} if verbose is None else {"verbose": verbose}
    Classifier.train(tmp_path / "model", ["a", "b"], ["x", "y"], **flags)
    lines = capsys.readouterr().err.splitlines()
    if verbose == 0:
        assert lines == []
    else:
        defaults, steps, *results = lines
        assert defaults.startswith("2 texts are few, so the training uses train_batch_size=16, num")
        assert re.fullmatch(r"4 of 10 steps, [\d.]+ a second, loss 0.5, [\d:]+ left", steps)
        assert results == [f"{tmp_path}/model: eval_accuracy 0.75"]
