"""The task of classifiers: losses, outputs, metrics, and the files of an evaluation."""

import numpy as np
import pytest

from official_bert import InputError
from official_bert.data.model_inputs import ModelInputs
from official_bert.tasks.base import DataFiles
from official_bert.tasks.classification.examples import EncodedExamples
from official_bert.tasks.classification.glue import ColaProcessor, MnliProcessor, StsbProcessor
from official_bert.tasks.classification.label_report import report_labels
from official_bert.tasks.classification.task import ClassificationTask
from official_bert.tasks.classification.text import TextProcessor

LOGITS = np.float32(
    [
        [2.0, -1.0, 0.5],
        [0.0, 0.0, 3.0],
    ]
)


def assert_close(actual, expected, rtol: float = 1e-6):
    np.testing.assert_allclose(actual, expected, rtol=rtol)


def assert_equal(actual, expected):
    np.testing.assert_array_equal(actual, expected)


class FixedModel:
    """A model that returns the same logits for every batch."""

    def __init__(self, logits):
        self.logits = logits

    def __call__(self, features):
        from keras import ops

        return ops.convert_to_tensor(self.logits)


def labelled_set(label_ids: np.ndarray) -> EncodedExamples:
    """A set of which only the targets count."""
    is_real_example = np.ones(len(label_ids), np.int32)
    return EncodedExamples(ModelInputs([]), label_ids, is_real_example)


def features(label_ids, is_real=(1, 1)) -> dict:
    return {
        "label_ids": np.asarray(label_ids),
        "is_real_example": np.int32(is_real),
    }


def text_task(labels: list[str], **settings) -> ClassificationTask:
    """The task of a text in the first column."""
    processor = TextProcessor("0", labels=labels, **settings)
    return ClassificationTask(processor)


def test_one_label():
    task = ClassificationTask(MnliProcessor())
    model = FixedModel(LOGITS)
    batch = features(np.int32([0, 1]))
    exponents = np.exp(LOGITS)
    softmax = exponents / exponents.sum(1, keepdims=True)
    label_probabilities = [
        softmax[0, 0],
        softmax[1, 1],
    ]
    losses = -np.log(label_probabilities)
    outputs = task.outputs(model, batch)
    assert_close(task.losses(model, batch), losses)
    assert_close(outputs["loss"], losses)
    assert_close(outputs["probabilities"], softmax)
    predictions = task.predictions({"probabilities": softmax})
    assert_equal(predictions, [0, 2])


def test_the_weight_of_a_padding_example_is_0():
    task = ClassificationTask(MnliProcessor())
    batch = features([0, 1], is_real=(1, 0))
    assert_equal(task.weights(batch), [1, 0])


def label_metrics(task: ClassificationTask, tmp_path) -> dict[str, float]:
    """The metrics and the report of seven examples of the first two labels.

    The second label is predicted for 5 examples, 3 times rightly, and 4 examples have it.
    """
    targets = [0, 0, 0, 1, 1, 1, 1]
    predicted = [0, 1, 1, 1, 0, 1, 1]
    encoded = labelled_set(np.array(targets))
    outputs = certain_outputs(task, predicted)
    task.report(str(tmp_path), encoded, outputs)
    return task.metrics(encoded, outputs)


def certain_outputs(task: ClassificationTask, label_ids: list[int]) -> dict[str, np.ndarray]:
    """The outputs of a model that is sure of these labels."""
    rows = np.eye(len(task.labels))
    return {"probabilities": rows[label_ids]}


def test_f1_of_two_labels_is_that_of_the_second_one(tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    task = text_task(["no", "yes"])
    metrics = label_metrics(task, tmp_path)
    assert metrics["eval_f1"] == pytest.approx(2 * 3 / (5 + 4))
    assert metrics["eval_accuracy"] == 4 / 7
    assert "eval_micro_f1" not in metrics
    assert "eval_precision, eval_recall, eval_f1: of the label yes" in caplog.messages


def test_f1_of_more_labels_is_an_average(tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    task = text_task(["a", "b", "c"])
    metrics = label_metrics(task, tmp_path)
    f1_scores = [
        2 * 1 / (2 + 3),
        2 * 3 / (5 + 4),
        0.0,
    ]
    assert metrics["eval_micro_f1"] == pytest.approx(4 / 7)
    assert metrics["eval_macro_f1"] == pytest.approx(sum(f1_scores) / 3)
    assert metrics["eval_accuracy"] == 4 / 7
    assert "eval_f1" not in metrics
    assert "eval_precision, eval_recall, eval_f1: of the label" not in caplog.text


def task_with_main_metric(tmp_path, labels: list[str], main_metric: str) -> ClassificationTask:
    (tmp_path / "train.tsv").write_text(f"text\tlabel\nthe cat\t{labels[0]}")
    processor = TextProcessor("text", labels=labels)
    processor.metrics = ("recall",)
    processor.main_metric = main_metric
    task = ClassificationTask(processor)
    encoded = labelled_set(np.array([0, 1]))
    metrics = task.metrics(encoded, certain_outputs(task, [0, 1]))
    assert "eval_macro_f1" in metrics
    return task


@pytest.mark.parametrize(
    ("labels", "main_metric", "alternative"),
    [
        pytest.param(
            ["no", "yes"],
            "micro_f1",
            "name f1$",
            id="micro_f1 of two labels",
        ),
        pytest.param(
            ["a", "b", "c"],
            "f1",
            "name micro_f1 or macro_f1$",
            id="f1 of three labels",
        ),
    ],
)
def test_a_main_metric_that_the_labels_do_not_have(tmp_path, labels, main_metric, alternative):
    task = task_with_main_metric(tmp_path, labels, main_metric)
    sentence = f"{len(labels)} labels do not have the main metric {main_metric}; {alternative}"
    with pytest.raises(InputError, match=sentence):
        task.read(DataFiles(str(tmp_path)), "train")


def test_a_main_metric_that_the_labels_have(tmp_path):
    task = task_with_main_metric(tmp_path, ["a", "b", "c"], "macro_f1")
    task.read(DataFiles(str(tmp_path)), "train")


def test_several_labels_at_once():
    task = text_task(["x", "y", "z"], is_multi_label=True)
    targets = np.int32(
        [
            [1, 0, 1],
            [0, 0, 0],
        ]
    )
    probabilities = 1 / (1 + np.exp(-LOGITS))
    target_probabilities = np.where(targets, probabilities, 1 - probabilities)
    losses = -np.log(target_probabilities).mean(1)
    outputs = task.outputs(FixedModel(LOGITS), features(targets))
    assert_close(outputs["loss"], losses, rtol=1e-5)
    assert_close(outputs["probabilities"], probabilities)
    predictions = task.predictions({"probabilities": probabilities})
    expected = [
        [1, 0, 1],
        [0, 0, 1],
    ]
    assert_equal(predictions, expected)


def test_a_score(tmp_path):
    task = ClassificationTask(StsbProcessor())
    logits = np.float32([[2.5], [-1.0]])
    targets = np.float32([2.0, 1.0])
    outputs = task.outputs(FixedModel(logits), features(targets))
    assert_close(outputs["loss"], [0.25, 4.0])
    assert_equal(outputs["score"], [2.5, -1.0])
    scores = {"score": logits[:, 0]}
    task.write_predictions(str(tmp_path), None, scores)
    results = tmp_path / "test_results.tsv"
    assert results.read_text() == "2.5\n-1.0\n"
    assert task.main_metric == "eval_spearman"


def constant_losses(processor, targets: np.ndarray, **arguments) -> np.ndarray | None:
    task = ClassificationTask(processor, **arguments)
    objective = task.objective(None)
    return objective.constant_losses(labelled_set(targets))


def test_losses_of_the_best_constant_label():
    losses = constant_losses(ColaProcessor(), np.int32([1, 0, 1, 1]))
    shares = [0.75, 0.25, 0.75, 0.75]
    assert_close(losses, -np.log(shares), rtol=1e-7)


def test_losses_of_the_best_constant_score():
    losses = constant_losses(StsbProcessor(), np.float32([1.0, 2.0, 6.0]))
    assert_close(losses, [4.0, 1.0, 9.0], rtol=1e-7)


def test_losses_of_the_best_constant_probabilities_of_several_labels():
    processor = TextProcessor("0", labels=["x", "y"], is_multi_label=True)
    targets = np.int32(
        [
            [1, 0],
            [0, 0],
            [0, 0],
            [0, 0],
        ]
    )
    losses = constant_losses(processor, targets)
    # No example has the second label, whose loss is 0.
    shares = [0.25, 0.75, 0.75, 0.75]
    first_label_losses = -np.log(shares)
    assert_close(losses, first_label_losses / 2, rtol=1e-7)


def test_the_best_constant_output_of_weighted_labels_is_unknown():
    targets = np.int32([1, 0])
    assert constant_losses(ColaProcessor(), targets, class_weights=[1.0, 3.5]) is None


def write_cola(folder):
    (folder / "train.tsv").write_text("s\t1\t*\tthe cat\n")


def test_class_weights(tmp_path, caplog):
    task = ClassificationTask(ColaProcessor(), class_weights=[1.0, 3.5])
    batch = features(np.int32([1, 0]))
    assert_equal(task.weights(batch), [3.5, 1.0])
    batch = features(np.int32([1, 1]), is_real=(0, 1))
    assert_equal(task.weights(batch), [0.0, 3.5])
    write_cola(tmp_path)
    caplog.set_level("INFO", logger="absl")
    task.read(DataFiles(str(tmp_path)), "train")
    assert "Class weights: 0: 1, 1: 3.5" in caplog.messages


def test_class_weights_of_another_number_than_the_labels(tmp_path):
    write_cola(tmp_path)
    task = ClassificationTask(ColaProcessor(), class_weights=[1.0])
    with pytest.raises(InputError, match="1 weights for 2 labels"):
        task.read(DataFiles(str(tmp_path)), "train")


def test_a_regression_has_no_class_weights():
    with pytest.raises(InputError, match="--class_weights: only for tasks with one label"):
        ClassificationTask(StsbProcessor(), class_weights=[1.0])


def test_predictions_are_written_without_the_file_for_glues_site(tmp_path, caplog):
    task = ClassificationTask(ColaProcessor())
    (tmp_path / "test.tsv").write_text("index\tsentence\n0\tthe cat\n")
    task.read(DataFiles(str(tmp_path)), "test")
    submission = tmp_path / "glue_submission"
    submission.write_text("a file in the folder's place")
    probabilities = np.float32([[0.99953365, 4.663804e-05]])
    outputs = {"probabilities": probabilities}
    task.write_predictions(str(tmp_path), None, outputs)
    results = tmp_path / "test_results.tsv"
    # The digits are those of the original.
    assert results.read_text() == "0.99953365\t4.663804e-05\n"
    assert f"no file for GLUE's site is written: {submission}" in caplog.text


# Pairs of a true label and a predicted one.
TARGETS, PREDICTIONS = np.transpose(
    [
        (0, 0),
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 1),
        (1, 0),
        (2, 2),
    ]
)


def test_the_scores_and_the_confusion_matrix(tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    path = tmp_path / "confusion_matrix.tsv"
    report_labels(str(path), TARGETS, PREDICTIONS, ["a", "long label", "c"])
    assert caplog.messages == [
        "***** Results of each label *****",
        "  label       precision  recall      f1  examples",
        "  a              0.6667  0.5000  0.5714         4",  # 2/3, 2/4
        "  long label     0.5000  0.5000  0.5000         2",  # 1/2, 1/2
        "  c              0.5000  1.0000  0.6667         1",  # 1/2, 1/1
        "***** Confusion matrix: a row for each true label, a column for each predicted one *****",
        "              a  long label  c",
        "  a           2           1  1",
        "  long label  1           1  0",
        "  c           0           0  1",
        f"Wrote {path}",
    ]
    assert path.read_text() == "\ta\tlong label\tc\na\t2\t1\t1\nlong label\t1\t1\t0\nc\t0\t0\t1\n"


def test_a_wide_confusion_matrix_is_only_in_the_file(tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    path = tmp_path / "confusion_matrix.tsv"
    report_labels(str(path), TARGETS, PREDICTIONS, list(range(13)))
    assert "Confusion matrix" not in caplog.text
    assert len(path.read_text().splitlines()) == 14
