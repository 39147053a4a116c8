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

LOGITS = np.float32([[2.0, -1.0, 0.5], [0.0, 0.0, 3.0]])


class Answering:
    """A model whose logits are given."""

    def __init__(self, logits):
        self.logits = logits

    def __call__(self, features):
        from keras import ops

        return ops.convert_to_tensor(self.logits)


def labelled_set(label_ids: np.ndarray) -> EncodedExamples:
    """A set of which only the targets count."""
    is_real_example = np.ones(len(label_ids), np.int32)
    return EncodedExamples(ModelInputs([]), label_ids, is_real_example)


def features(label_ids, real=(1, 1)):
    return {"label_ids": np.asarray(label_ids), "is_real_example": np.int32(real)}


def test_one_label():
    task = ClassificationTask(MnliProcessor())
    batch = features(np.int32([0, 1]))
    softmax = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    expected = -np.log(softmax[[0, 1], [0, 1]])
    outputs = task.outputs(Answering(LOGITS), batch)
    np.testing.assert_allclose(task.losses(Answering(LOGITS), batch), expected, rtol=1e-6)
    np.testing.assert_allclose(outputs["loss"], expected, rtol=1e-6)
    np.testing.assert_allclose(outputs["probabilities"], softmax, rtol=1e-6)
    np.testing.assert_array_equal(task.predictions({"probabilities": softmax}), [0, 2])
    np.testing.assert_array_equal(task.weights(features([0, 1], real=(1, 0))), [1, 0])


@pytest.mark.parametrize(
    ("labels", "keys"), [("no yes", ("f1",)), ("a b c", ("micro_f1", "macro_f1"))]
)
def test_f1_of_two_labels_is_that_of_the_second_and_of_more_an_average(
    tmp_path, caplog, labels, keys
):
    caplog.set_level("INFO", logger="absl")
    task = ClassificationTask(TextProcessor("0", labels=labels.split()))
    encoded = labelled_set(np.array([0, 0, 0, 1, 1, 1, 1]))
    # 3 of 5 said, 3 of 4 found.
    outputs = {"probabilities": np.eye(len(task.labels))[[0, 1, 1, 1, 0, 1, 1]]}
    found = task.metrics(encoded, outputs)
    of_first, of_second = 2 * 1 / (2 + 3), 2 * 3 / (5 + 4)
    expected = {"f1": of_second, "micro_f1": 4 / 7, "macro_f1": (of_first + of_second) / 3}
    assert {name: found[f"eval_{name}"] for name in keys} == pytest.approx(
        {name: expected[name] for name in keys}
    )
    assert {"eval_f1", "eval_micro_f1"} & set(found) == {f"eval_{keys[0]}"}
    assert found["eval_accuracy"] == 4 / 7
    task.report(str(tmp_path), encoded, outputs)
    assert ("eval_precision, eval_recall, eval_f1: of the label yes" in caplog.messages) == (
        keys == ("f1",)
    )


@pytest.mark.parametrize(
    ("labels", "main", "other"),
    [
        ("no yes", "micro_f1", "name f1$"),
        ("a b c", "f1", "name micro_f1 or macro_f1$"),
        ("a b c", "macro_f1", None),
    ],
)
def test_the_main_metric_is_one_that_the_labels_have(tmp_path, labels, main, other):
    (tmp_path / "train.tsv").write_text("text\tlabel\nthe cat\t" + labels.split()[0])
    task = ClassificationTask(TextProcessor("text", labels=labels.split()))
    task.processor.metrics, task.processor.main_metric = ("recall",), main
    encoded = labelled_set(np.array([0, 1]))
    assert "eval_macro_f1" in task.metrics(
        encoded, {"probabilities": np.eye(len(task.labels))[[0, 1]]}
    )
    if other:
        with pytest.raises(InputError, match=f"labels do not have the main metric {main}; {other}"):
            task.read(DataFiles(str(tmp_path)), "train")
        return
    task.read(DataFiles(str(tmp_path)), "train")


def test_several_labels_at_once():
    processor = TextProcessor("0", labels=["x", "y", "z"], is_multi_label=True)
    task = ClassificationTask(processor)
    targets = np.int32([[1, 0, 1], [0, 0, 0]])
    probabilities = 1 / (1 + np.exp(-LOGITS))
    expected = -(targets * np.log(probabilities) + (1 - targets) * np.log(1 - probabilities)).mean(
        1
    )
    outputs = task.outputs(Answering(LOGITS), features(targets))
    np.testing.assert_allclose(outputs["loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(outputs["probabilities"], probabilities, rtol=1e-6)
    np.testing.assert_array_equal(
        task.predictions({"probabilities": probabilities}), [[1, 0, 1], [0, 0, 1]]
    )


def test_a_score(tmp_path):
    task = ClassificationTask(StsbProcessor())
    logits = np.float32([[2.5], [-1.0]])
    outputs = task.outputs(Answering(logits), features(np.float32([2.0, 1.0])))
    np.testing.assert_allclose(outputs["loss"], [0.25, 4.0], rtol=1e-6)
    np.testing.assert_array_equal(outputs["score"], [2.5, -1.0])
    task.write_predictions(str(tmp_path), None, {"score": logits[:, 0]})
    assert (tmp_path / "test_results.tsv").read_text() == "2.5\n-1.0\n"
    assert task.main_metric == "eval_spearman"


def test_losses_of_the_best_constant_output():
    def constant_losses(processor, targets, **more):
        objective = ClassificationTask(processor, **more).objective(None)
        return objective.constant_losses(labelled_set(targets))

    losses = constant_losses(ColaProcessor(), np.int32([1, 0, 1, 1]))
    np.testing.assert_allclose(losses, -np.log([0.75, 0.25, 0.75, 0.75]))
    losses = constant_losses(StsbProcessor(), np.float32([1.0, 2.0, 6.0]))
    np.testing.assert_allclose(losses, [4.0, 1.0, 9.0])
    several = TextProcessor("0", labels=["x", "y"], is_multi_label=True)
    losses = constant_losses(several, np.int32([[1, 0], [0, 0], [0, 0], [0, 0]]))
    # The second label says nothing.
    np.testing.assert_allclose(losses, -np.log([0.25, 0.75, 0.75, 0.75]) / 2)
    assert constant_losses(ColaProcessor(), np.int32([1, 0]), class_weights=[1.0, 3.5]) is None


def test_weights_of_the_labels(tmp_path, caplog):
    task = ClassificationTask(ColaProcessor(), class_weights=[1.0, 3.5])
    np.testing.assert_array_equal(task.weights(features(np.int32([1, 0]))), [3.5, 1.0])
    np.testing.assert_array_equal(task.weights(features(np.int32([1, 1]), real=(0, 1))), [0.0, 3.5])
    (tmp_path / "train.tsv").write_text("s\t1\t*\tthe cat\n")
    caplog.set_level("INFO", logger="absl")
    task.read(DataFiles(str(tmp_path)), "train")
    assert "Class weights: 0: 1, 1: 3.5" in caplog.messages
    with pytest.raises(InputError, match="1 weights for 2 labels"):
        ClassificationTask(ColaProcessor(), class_weights=[1.0]).read(
            DataFiles(str(tmp_path)), "train"
        )
    with pytest.raises(InputError, match="--class_weights: only for tasks with one label"):
        ClassificationTask(StsbProcessor(), class_weights=[1.0])


def test_a_run_goes_on_without_glues_file(tmp_path, caplog):
    task = ClassificationTask(ColaProcessor())
    (tmp_path / "test.tsv").write_text("index\tsentence\n0\tthe cat\n")
    task.read(DataFiles(str(tmp_path)), "test")
    (tmp_path / "glue_submission").write_text("a file in the folder's place")
    task.write_predictions(
        str(tmp_path), None, {"probabilities": np.float32([[0.99953365, 4.663804e-05]])}
    )
    # Digits as the original's.
    assert (tmp_path / "test_results.tsv").read_text() == "0.99953365\t4.663804e-05\n"
    assert f"no file for GLUE's site is written: {tmp_path}/glue_submission" in caplog.text


# true: a a a a b b c; predicted: a a b c b a c
TARGETS, PREDICTIONS = np.array([0, 0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 2, 1, 0, 2])


def test_the_scores_and_the_matrix(tmp_path, caplog):
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
    # A wide matrix is in the file alone.
    caplog.clear()
    report_labels(str(path), TARGETS, PREDICTIONS, list(range(13)))
    assert "Confusion matrix" not in caplog.text
    assert len(path.read_text().splitlines()) == 14
