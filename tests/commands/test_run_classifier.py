"""Tests what run_classifier refuses before training; its results are tested with the script."""

import dataclasses

import pytest

from official_bert.fine_tuning.run import fine_tune
from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import ClassificationOptions
from official_bert.tasks.classification.examples import InputExample
from official_bert.tasks.classification.processor import DataProcessor
from tests import toy


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return toy.make_bert_base_dir(tmp_path_factory.mktemp("toy") / "base")


@pytest.fixture
def options(base, tmp_path):
    """A task of two labels with all its files."""
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.tsv").write_text("text\tkind\n" + "the cat\ta\nthe train\tb\n" * 4)
    return ClassificationOptions(
        task_name="tsv", data_dir=str(tmp_path), max_seq_length=8, train_batch_size=4, num_train_epochs=1.0,
        vocab_file=str(base / "vocab.txt"), bert_config_file=str(base / "bert_config.json"),
        output_dir=str(tmp_path / "out"), do_train=True,
    )  # fmt: skip


def refuse(options, sentence, **changes):
    with pytest.raises(InputError, match=sentence):
        fine_tune(dataclasses.replace(options, **changes))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"task_name": "CoLA", "labels": ["1", "0"]}, "--labels: only goes with --task_name=tsv, not CoLA"),
        ({"task_name": "cola", "label_type": "score"}, "--label_type: only goes with --task_name=tsv"),
        ({"class_weights": []}, "--class_weights=: give numbers separated by commas, none negative and not all"),
        ({"class_weights": ["1", "x"]}, "--class_weights=1,x: give numbers"),
        ({"class_weights": ["1", "nan"]}, "--class_weights=1,nan: give numbers"),
        ({"class_weights": ["1", "inf"]}, "--class_weights=1,inf: give numbers"),
        ({"class_weights": ["1", "-1"]}, "--class_weights=1,-1: give numbers"),
        ({"class_weights": ["0", "0"]}, "--class_weights=0,0: give numbers"),
    ],
)
def test_flags_that_cannot_be_used_are_named(options, changes, sentence):
    refuse(options, sentence, **changes)


@pytest.mark.parametrize(
    ("file", "text", "changes", "sentence"),
    [
        ("dev", None, {"do_eval": True}, r"dev.tsv: no such file"),
        ("dev", "text\tkind\nthe cat\tc\n", {"do_eval": True}, r"dev.tsv: line 2: has the label 'c'"),
        ("dev", None, {"eval_every": "1"}, r"dev.tsv: no such file"),
        ("test", None, {"do_predict": True}, r"test.tsv: no such file"),
    ],
)
def test_files_are_read_before_the_training_that_they_could_stop(options, tmp_path, file, text, changes, sentence):
    path = tmp_path / f"{file}.tsv"
    path.write_text(text) if text else path.unlink()
    refuse(options, sentence, **changes)
    assert not list((tmp_path / "out").iterdir())


def test_a_run_goes_on_with_the_labels_that_it_has(options, tmp_path):
    fine_tune(options)
    path = tmp_path / "train.tsv"
    path.write_text(path.read_text().replace("\tb", "\tA"))  # now the first in order
    refuse(options, "labels.txt: the model's outputs stand for a, b, but the task's labels are A, a; name the")
    assert (tmp_path / "out" / "labels.txt").read_text() == "a\nb\n"
    refuse(options, "outputs stand for a, b, but", do_train=False, do_predict=True, labels=["b", "a"])
    fine_tune(dataclasses.replace(options, do_train=False, do_predict=True, labels=["a", "b"]))


class Urgency(DataProcessor):
    """A task of one's own that lets examples without labels through."""

    labels = (0, 1)
    train = (0, 1, 1)
    dev = (0, None)

    def get_labels(self):
        return list(self.labels)

    def get_train_examples(self, data_dir):
        return [InputExample(f"train-{n}", "the cat", None, label) for n, label in enumerate(self.train)]

    def get_dev_examples(self, data_dir):
        return [InputExample(f"dev-{n}", "the cat", None, label) for n, label in enumerate(self.dev)]

    def get_test_examples(self, data_dir):
        return []


class Unlabelled(Urgency):
    train = (1, None, 0)


class UnknownLabel(Urgency):
    train = (1, 7)


class NoTraining(Urgency):
    train = ()


@pytest.mark.parametrize(
    ("task", "changes", "sentence"),
    [
        ("Urgency", {"do_eval": True}, "the development example dev-1 has no label; give it one"),
        ("Urgency", {"do_predict": True}, "holds no test example of the task; check --data_dir"),
        ("Urgency", {"class_weights": ["1"]}, r"1 weights for 2 labels \(0, 1\); give one for each"),
        ("Unlabelled", {}, "the training example train-1 has no label; give it one, or leave it out"),
        ("UnknownLabel", {"train_batch_size": 2}, "train-1: has the label 7; the labels are 0, 1"),
        ("NoTraining", {}, "holds no training example of the task; check --data_dir"),
    ],
)
def test_what_a_task_of_ones_own_lets_through_is_refused(options, task, changes, sentence):
    refuse(options, sentence, task_name=f"tests.commands.test_run_classifier:{task}", **changes)


def test_a_set_without_labels_is_only_predicted(options, tmp_path, caplog):
    (tmp_path / "AX.tsv").write_text("index\tsentence1\tsentence2\n0\tthe cat\tthe train\n1\ta\tb\n")
    predicted = dataclasses.replace(options, task_name="AX", do_train=False, do_eval=True)
    refuse(predicted, "--do_eval: .* has no labels to evaluate with; give --do_predict")
    caplog.clear()
    with caplog.at_level("WARNING", logger="absl"):
        fine_tune(dataclasses.replace(predicted, do_predict=True, allow_missing_weights=True))
    assert "AX.tsv: has no column 'label' to evaluate with" in caplog.text
    assert len((tmp_path / "out" / "test_results.tsv").read_text().splitlines()) == 2
    assert not (tmp_path / "out" / "eval_results.txt").exists()
