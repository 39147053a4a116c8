"""run_classifier.py: the original's evaluations and predictions, a task of one's own, and what
is refused.
"""

import dataclasses

import numpy as np
import pytest

from official_bert.fine_tuning.run import fine_tune
from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import ClassificationOptions
from official_bert.tasks.classification.examples import InputExample
from official_bert.tasks.classification.processor import DataProcessor
from tests.fine_tuning_runs import figures
from tests.scripts import flag_list, run_here, run_recorded, run_script
from tests.serving.answers import answers_to_records
from tests.shared import in_test_long


@pytest.mark.usefixtures("with_grappler")
@pytest.mark.parametrize(
    ("task", "run"), [("CoLA", run_script), ("MNLI", run_here), *in_test_long(("MRPC", run_here))]
)
def test_the_originals_files_are_reproduced(task, run, tmp_path):
    _, expected = run_recorded(f"run_classifier_{task}", tmp_path, run)
    actual = figures(tmp_path)
    wanted = figures(expected("eval_results.txt").parent)
    assert {name: actual[name] for name in wanted} == pytest.approx(wanted, rel=2e-5, abs=2e-5)
    rows, wanted_rows = map(
        np.loadtxt, (tmp_path / "test_results.tsv", expected("test_results.tsv"))
    )
    np.testing.assert_allclose(rows, wanted_rows, rtol=2e-5, atol=2e-5)
    for name in ("eval.tf_record", "predict.tf_record"):
        assert (tmp_path / name).stat().st_size > 0


def write_task(folder):
    """A label that one word tells: what `cat` and `train` stand in."""
    draws = np.random.default_rng(1)
    fillers = ["the", "sat", "on", "mat", "was", "a", "day", "in", "park", "at", "noon"]

    def line(label):
        words = list(draws.choice(fillers, draws.integers(2, 12)))
        place = draws.integers(len(words) + 1)
        words.insert(place, "cat" if label == "animal" else "train")
        return f"{' '.join(words)}\t{label}\n"

    for name, count in (("train", 256), ("dev", 64), ("test", 40)):
        labels = draws.choice(["animal", "vehicle"], count)
        lines = [line(label) for label in labels]
        (folder / f"{name}.tsv").write_text("".join(["text\tkind\n", *lines]))


def test_a_task_of_ones_own_is_learnt_evaluated_and_predicted(base, tmp_path):
    write_task(tmp_path)
    model = flag_list(
        task_name="tsv",
        data_dir=tmp_path,
        text_a_column="text",
        label_column="kind",
        max_seq_length=32,
        vocab_file=base / "vocab.txt",
        bert_config_file=base / "bert_config.json",
    )
    trained = tmp_path / "trained"
    run_here(
        "run_classifier.py",
        *model,
        *flag_list(
            output_dir=trained,
            do_train=True,
            do_eval=True,
            do_predict=True,
            num_train_epochs=12,
            train_batch_size=16,
            learning_rate=3e-3,
            random_seed=1,
        ),
    )
    run_here("export_saved_model", *flag_list(model=trained, export_dir=tmp_path / "exports"))
    results = figures(trained)
    assert results["eval_accuracy"] > 0.95
    assert results["global_step"] == 192  # 256 / 16 * 12
    assert (trained / "labels.txt").read_text() == "animal\nvehicle\n"

    # The checkpoint alone is enough to predict, in another folder and at another batch size.
    again = tmp_path / "again"
    run_here(
        "run_classifier.py",
        *model,
        *flag_list(
            output_dir=again, init_checkpoint=trained, do_predict=True, predict_batch_size=3
        ),
    )
    first = np.loadtxt(trained / "test_results.tsv")
    second = np.loadtxt(again / "test_results.tsv")
    assert first.shape == (40, 2)
    np.testing.assert_allclose(first, second, atol=2e-6)
    truth = [
        line.split("\t")[1] == "vehicle"
        for line in (tmp_path / "test.tsv").read_text().splitlines()[1:]
    ]
    assert (first.argmax(1) == np.array(truth)).mean() > 0.95

    exported = answers_to_records(tmp_path / "exports" / "1", trained / "predict.tf_record")
    np.testing.assert_allclose(exported["probabilities"], first, atol=1e-5)
    np.testing.assert_array_equal(
        exported["label"], np.array([b"animal", b"vehicle"])[first.argmax(1)]
    )


@pytest.fixture
def options(base, tmp_path):
    """A task of two labels with all its files."""
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.tsv").write_text("text\tkind\n" + "the cat\ta\nthe train\tb\n" * 4)
    return ClassificationOptions(
        task_name="tsv",
        data_dir=str(tmp_path),
        max_seq_length=8,
        train_batch_size=4,
        num_train_epochs=1.0,
        vocab_file=str(base / "vocab.txt"),
        bert_config_file=str(base / "bert_config.json"),
        output_dir=str(tmp_path / "out"),
        do_train=True,
    )


def refuse(options, sentence, **changes):
    with pytest.raises(InputError, match=sentence):
        fine_tune(dataclasses.replace(options, **changes))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"task_name": "sentiment"}, "Task not found: sentiment; give one of"),
        (
            {"task_name": "CoLA", "labels": ["1", "0"]},
            "--labels: only goes with --task_name=text, not CoLA",
        ),
        (
            {"task_name": "MRPC", "long_texts": "windows"},
            "--long_texts=windows: is for single texts, and MrpcProcessor",
        ),
        (
            {"class_weights": []},
            "--class_weights=: give numbers separated by commas, none negative and not all",
        ),
        ({"class_weights": ["1", "x"]}, "--class_weights=1,x: give numbers"),
        ({"class_weights": ["1", "nan"]}, "--class_weights=1,nan: give numbers"),
        ({"class_weights": ["1", "-1"]}, "--class_weights=1,-1: give numbers"),
        ({"class_weights": ["0", "0"]}, "--class_weights=0,0: give numbers"),
    ],
)
def test_flags_that_cannot_be_used_are_named(options, changes, sentence):
    refuse(options, sentence, **changes)


@pytest.mark.parametrize(
    ("file", "text", "changes", "sentence"),
    [
        (
            "dev",
            "text\tkind\nthe cat\tc\n",
            {"do_eval": True},
            r"dev.tsv: line 2: has the label 'c'",
        ),
        ("dev", None, {"eval_every_steps": 1}, r"dev.tsv: no such file"),
        ("test", None, {"do_predict": True}, r"test.tsv: no such file"),
    ],
)
def test_files_are_read_before_the_training_that_they_could_stop(
    options, tmp_path, file, text, changes, sentence
):
    path = tmp_path / f"{file}.tsv"
    path.write_text(text) if text else path.unlink()
    refuse(options, sentence, **changes)
    assert not (tmp_path / "out").exists()


def test_a_run_goes_on_with_the_labels_that_it_has(options, tmp_path):
    fine_tune(options)
    path = tmp_path / "train.tsv"
    path.write_text(path.read_text().replace("\tb", "\tA"))  # now the first in order
    refuse(
        options,
        "labels.txt: the model's outputs stand for a, b, but the task's labels are A, a; name the",
    )
    assert (tmp_path / "out" / "labels.txt").read_text() == "a\nb\n"
    refuse(
        options, "outputs stand for a, b, but", do_train=False, do_predict=True, labels=["b", "a"]
    )
    fine_tune(dataclasses.replace(options, do_train=False, do_predict=True, labels=["a", "b"]))


class Urgency(DataProcessor):
    """A task of one's own that lets examples without labels through."""

    labels = (0, 1)
    train = ()
    dev = (0, None)

    def get_labels(self):
        return list(self.labels)

    def get_train_examples(self, data_dir):
        return [
            InputExample(f"train-{n}", "the cat", None, label) for n, label in enumerate(self.train)
        ]

    def get_dev_examples(self, data_dir):
        return [
            InputExample(f"dev-{n}", "the cat", None, label) for n, label in enumerate(self.dev)
        ]

    def get_test_examples(self, data_dir):
        return []


@pytest.mark.parametrize(
    ("train", "changes", "sentence"),
    [
        ((0, 1, 1), {"do_eval": True}, "the development example dev-1 has no label; give it one"),
        ((0, 1, 1), {"do_predict": True}, "has no test examples of the task; check --data_dir"),
        (
            (0, 1, 1),
            {"class_weights": ["1"]},
            r"1 weights for 2 labels \(0, 1\); give one for each",
        ),
        (
            (1, None, 0),
            {},
            "the training example train-1 has no label; give it one, or remove it",
        ),
        ((1, 7), {"train_batch_size": 2}, "train-1: has the label 7; the labels are 0, 1"),
        ((), {}, "has no training examples of the task; check --data_dir"),
    ],
)
def test_what_a_task_of_ones_own_lets_through_is_refused(
    options, monkeypatch, train, changes, sentence
):
    monkeypatch.setattr(Urgency, "train", train)
    refuse(options, sentence, task_name=f"{__name__}:Urgency", **changes)


def test_a_set_without_labels_is_only_predicted(options, tmp_path, caplog):
    (tmp_path / "AX.tsv").write_text(
        "index\tsentence1\tsentence2\n0\tthe cat\tthe train\n1\ta\tb\n"
    )
    predicted = dataclasses.replace(options, task_name="AX", do_train=False, do_eval=True)
    refuse(predicted, "--do_eval: .* has no labels to evaluate with; give --do_predict")
    caplog.clear()
    with caplog.at_level("WARNING", logger="absl"):
        fine_tune(dataclasses.replace(predicted, do_predict=True, allow_missing_weights=True))
    assert "AX.tsv: has no column 'label' to evaluate with" in caplog.text
    assert len((tmp_path / "out" / "test_results.tsv").read_text().splitlines()) == 2
    assert not (tmp_path / "out" / "eval_results.txt").exists()
